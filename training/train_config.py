"""Configs of the four stages (`configs/train/*.yaml`; the packaged ones fit the embedded tiny model).

Relative paths are taken from the working directory. How long a stage trains is given in passes or in optimizer steps,
never in seconds, so that the same config gives the same weights.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from configs.schema import Config
from inference.web.config import WebConfig
from rollout_env.reward import RewardConfig


class OptimizerConfig(Config):
    """AdamW and its schedule."""

    lr: float = Field(gt=0)
    """Learning rate at its highest."""
    schedule: Literal["constant", "cosine", "linear"] = "cosine"
    """What follows the warm-up: hold, or fall towards 0, which the step after the last would have."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps whose rate is lower than `lr`: 1/(n+1) of it at the first, n/(n+1) at the n-th."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled; not applied to norms and biases."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    clip: float = Field(default=1.0, gt=0)
    """The gradient's norm is scaled down to this."""
    stop_above: float | None = Field(default=None, gt=0)
    """The run fails, before the step is taken, when the gradient's norm (unclipped) exceeds this. None: only when it is
    not a number."""


class StageConfig(Config):
    """What every stage has."""

    model: Path
    """Model folder the stage starts from."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Order of the data, and of the questions in grpo."""
    optimizer: OptimizerConfig
    batch_tokens: int = Field(default=4096, ge=1)
    """Padded tokens of one micro-batch (one forward pass of one process); a longer row stands alone."""
    max_tokens: int = Field(default=2560, ge=2)
    """Rows longer than this are refused and reported, never cut."""
    save_every: int = Field(default=100, ge=1)
    """Optimizer steps between checkpoints. An interrupted run goes on from the last one."""
    router_balance: float = Field(default=0.001, ge=0)
    """Coefficient of the router's load-balancing loss in mixtures of experts."""
    threads: int | None = Field(default=1, ge=1)
    """CPU threads of torch. The weights are a function of the config for a given number. None: leave it alone."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of the forward pass; weights and optimizer stay in fp32."""
    activation_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, a third more time."""
    deepspeed: Path | None = None
    """DeepSpeed's JSON config, for runs under torchrun or its launcher. None: none."""


class DataStageConfig(StageConfig):
    """A stage over files."""

    data: tuple[Path, ...] = Field(min_length=1)
    """Record files, read one after the other."""
    accumulate: int = Field(default=1, ge=1)
    """Micro-batches of one process to an optimizer step."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the data."""
    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps, over as many passes as they take. None: what `epochs` passes take."""


class LmConfig(DataStageConfig):
    """mid and sft: next-token loss on the trained tokens."""

    stage: Literal["mid", "sft"]
    """mid reads `training.rows.Target` records, sft episodes."""


class DpoConfig(DataStageConfig):
    """Direct preference optimisation over pairs of episodes (`training.rows.Pair` records)."""

    beta: float = Field(default=0.1, gt=0)
    sft_weight: float = Field(default=0.1, ge=0)
    """lambda: weight of the next-token loss on the chosen side."""


class EngineConfig(Config):
    """The in-process engine that samples rollouts."""

    slots: int = Field(default=64, ge=1)
    """Conversations whose keys and values are held at once."""
    context: int = Field(default=2560, ge=2)
    """Tokens of one conversation, prompt and turn; no fewer than the agent's `context_tokens`."""
    step_tokens: int = Field(default=2048, ge=1)
    """Prompt tokens computed in one pass."""


class PolicyTerms(Config):
    """Coefficients of the grpo objective; `training.loss` has the formula."""

    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(default=0.2, gt=0)
    """The ratio is clipped above at 1 + clip_high."""
    kl: float = Field(default=0.001, ge=0)
    """beta_0: KL weight of every token."""
    kl_entropy: float = Field(default=0.0, ge=0)
    """beta_ent: added for unlikely tokens of rollouts with a negative advantage."""
    tau: float = Field(default=-3.0, le=0)
    """Nats; a token is unlikely when its log-probability under the current policy is below this."""
    by_std: bool = False
    """Divide advantages by the group's standard deviation (Flow-GRPO)."""
    denominator: Literal["rollout", "token"] = "rollout"
    """What weighs the same: every rollout, or every token."""


class GrpoConfig(StageConfig):
    """Policy optimisation on the policy's own rollouts, each used for one update."""

    agent: str
    """Packaged agent (`configs/agents`) or YAML file. Rollouts sample at temperature 1 and top-p 1 whatever it says."""
    web: WebConfig
    """What its tools reach."""
    problems: Path
    """problems.jsonl; each update draws its questions from it without replacement until all were seen."""
    updates: int = Field(ge=1)
    """Optimizer steps."""
    questions: int = Field(ge=1)
    """Q: questions an update."""
    samples: int = Field(ge=1)
    """G: rollouts of each question, one group."""
    concurrency: int = Field(default=64, ge=1)
    """Rollouts in flight at once. Changes the speed only."""
    reward: RewardConfig = RewardConfig()
    objective: PolicyTerms = PolicyTerms()
    max_mismatch: float = Field(default=1e-3, gt=0)
    """Nats. The run fails, before the step, when engine and trainer differ by more on the mean sampled token."""
    engine: EngineConfig = EngineConfig()

    @model_validator(mode="after")
    def _rollouts_fit(self) -> Self:
        if self.max_tokens < self.engine.context:
            raise ValueError("max_tokens is below engine.context: a rollout could be too long to train")
        return self
