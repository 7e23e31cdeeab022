"""The stage grpo: group-relative policy optimisation on the policy's own rollouts.

* An update samples rollouts with the current weights, takes exactly one optimizer step on them and never sees them
  again. Its micro-batches are parts of one loss, whose denominators are the whole update's.
* The advantage is one number a rollout, over the clean rollouts of its question; rows, turns and tries do not vote.
* The engine samples from the trainer's own parameters; after each step it forgets what it computed with the old ones.
* Behaviour log-probabilities are the recorded ones. If they differ from the trainer's by more than `max_mismatch` on
  the mean, engine and trainer are not the same policy: the run fails before the step.
* The reference is the checkpoint the stage starts from.

Sources: GRPO (Shao et al. 2024) with A = R - mean(R) and the entropy-controlled KL of MiroThinker-1.7; with `by_std`
and kl = 0.001, Flow-GRPO.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import DistributedType
from torch import Tensor

from configs.errors import ConfigError, RunFailed
from inference.llm.render import ChatMLRenderer
from inference.web.recorded_web import RecordedWeb
from rollout_env.outcome import Outcome
from rollout_env.sample import Sample
from training.collate import Shape, collate, pack
from training.engine import SlotEngine
from training.loss import advantages, grpo_loss, token_weights
from training.metrics import Metrics, Progress
from training.policy import frozen_reference, open_policy
from training.processes import open_processes
from training.rollouts import AgentRollouts, RolloutSource, agent_file
from training.rows import Renderer, Row, RowError, admit, rows_from_episode
from training.stage import run_stage
from training.train_config import GrpoConfig
from training.trainer import Plan, StageTrainer


@dataclass(frozen=True, slots=True, eq=False)
class CreditedRow:
    row: Row
    advantage: float
    token_weight: float
    """u of each trained token, see `training.loss`."""


class GrpoTrainer(StageTrainer):
    def __init__(
        self,
        config: GrpoConfig,
        *args: Any,
        renderer: Renderer,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, *args, **kwargs)
        self._grpo = config
        self.sample: Callable[[int], Sequence[Sample]] = lambda update: []
        """Judged rollouts of an update under the present weights; set before training."""
        self._renderer = renderer
        uses_kl = config.objective.kl > 0 or config.objective.kl_entropy > 0
        self._reference = frozen_reference(config, self) if uses_kl else None

    def denominators(self, batch: Mapping[str, Tensor]) -> Tensor:
        """None that the base class could count: `credit` holds them."""
        return torch.ones(1)

    def training_step(self, model: Any, inputs: Mapping[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
        """Sample the update's rollouts, then accumulate the gradient of their loss."""
        update, began = int(inputs["update"]), time.monotonic()
        samples = self.sample(update)
        self.tally(report(samples) | {"rollout_seconds": time.monotonic() - began})
        credited = credit(samples, self._renderer, self._grpo)
        if not credited:
            raise RunFailed(f"update {update}: none of its {len(samples)} rollouts is clean")
        model.train()
        batches = _micro_batches(credited, self._grpo.batch_tokens)
        total = sum(len(c.row.trained.nonzero()[0]) for c in credited)
        losses = []
        for i, batch in enumerate(batches):
            with self._accumulating(model, last=i + 1 == len(batches)):
                loss = self.share(model, self._prepare_inputs(batch), total)
                self.accelerator.backward(loss, **self._backward_options())
            losses.append(loss.detach())
        self._require_match(update)
        return torch.stack(losses).sum()

    def share(self, model: Any, batch: Mapping[str, Tensor], total: int) -> Tensor:
        """The micro-batch's share of the loss of an update with `total` trained tokens; so are its metrics."""
        scores = self.score(model, batch, entropy=True)
        reference = None
        if self._reference is not None:
            with torch.no_grad():
                reference = self.score(self._reference, batch, train=False).log_probs
        behaviour = batch["logprobs"][:, 1:][batch["trained"][:, 1:]]
        advantage, weights = batch["advantages"][scores.rows], batch["token_weights"][scores.rows]
        terms = grpo_loss(scores.log_probs, behaviour, reference, advantage, weights, self._grpo.objective)
        assert scores.entropy is not None
        parts = {
            "entropy": scores.entropy,
            "kl": terms.kl,
            "clipped": terms.clipped,
            "mismatch": (scores.log_probs.detach() - behaviour).abs(),
        }
        self.tally({name: float(part.sum()) / total for name, part in parts.items()})
        self.tally({"tokens": float(batch["attention_mask"].sum()), "trained": float(len(behaviour))})
        if scores.balance is None:
            return terms.loss
        share = len(behaviour) / total
        return terms.loss + self._config.router_balance * share * scores.balance

    def _accumulating(self, model: Any, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients are reduced over processes, and DeepSpeed steps, at the last micro-batch only."""
        self.accelerator.gradient_state._set_sync_gradients(last)
        if last or self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            return nullcontext()
        context: AbstractContextManager[Any] = self.accelerator.no_sync(model)
        return context

    def _backward_options(self) -> dict[str, bool]:
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        return {"scale_wrt_gas": False} if deepspeed else {}

    def _require_match(self, update: int) -> None:
        apart = self._sums["mismatch"]
        if not apart <= self._grpo.max_mismatch:
            raise RunFailed(
                f"update {update}: engine and trainer differ by {apart:.3g} nats on the mean sampled token, more than "
                f"max_mismatch = {self._grpo.max_mismatch:g}; no step was taken"
            )


def run(
    config: GrpoConfig,
    out: Path,
    progress: Progress | None = None,
    *,
    source: RolloutSource | None = None,
    recorded: RecordedWeb | None = None,
) -> Path:
    """Train the stage in `out`; the finished model folder.

    `source` takes the place of the config's agent and web; `recorded` is the web of an embedded `web:` that names no
    corpus. Raises UsageError, InfraError, RunFailed.
    """
    if open_processes(deepspeed=config.deepspeed is not None).num_processes > 1:
        raise ConfigError("grpo with the in-process engine runs in one process; start it without a launcher")
    inputs = [] if source else [config.problems, agent_file(config)]

    def build(folder: Path, metrics: Metrics) -> StageTrainer:
        model, renderer = open_policy(config)
        rollouts = source or AgentRollouts(config, out, renderer, recorded)
        trainer = GrpoTrainer(
            config,
            model,
            Plan(config.updates, lambda i: {"update": torch.tensor(i)}),
            folder,
            metrics,
            steps=config.updates,
            progress=progress,
            renderer=renderer,
        )
        trainer.sample = partial(_sample, rollouts, stack.enter_context(_open_engine(config, trainer.model, renderer)))
        return trainer

    with ExitStack() as stack:
        return run_stage("grpo", config, out, inputs, build)


def credit(samples: Sequence[Sample], renderer: Renderer, config: GrpoConfig) -> list[CreditedRow]:
    """The rows of the clean rollouts, each with its rollout's advantage and the weight of its tokens.

    Raises RunFailed where a clean rollout cannot be trained as it was recorded: leaving it out would bias the update.
    """
    gains = group_advantages(samples, by_std=config.objective.by_std)
    rollouts = [
        (rows, gain)
        for sample, gain in zip(samples, gains, strict=True)
        if gain is not None and (rows := _rows(sample, renderer, config.max_tokens))
    ]
    return _weighted(rollouts, config)


def group_advantages(samples: Sequence[Sample], *, by_std: bool) -> list[float | None]:
    """Each sample's advantage among the samples of its question, in order; None where it has no reward."""
    rewards = [None if sample.reward is None else sample.reward.total for sample in samples]
    members: dict[str, list[int]] = {}
    for i, sample in enumerate(samples):
        members.setdefault(sample.problem.question.id, []).append(i)
    gains: list[float | None] = [None] * len(samples)
    for indices in members.values():
        for i, gain in zip(indices, advantages([rewards[i] for i in indices], by_std=by_std), strict=True):
            gains[i] = gain
    return gains


def collate_credited(rows: Sequence[CreditedRow]) -> dict[str, Tensor]:
    """A batch with `advantages` and `token_weights` [B]."""
    return {
        **collate([c.row for c in rows]),
        "advantages": torch.tensor([c.advantage for c in rows], dtype=torch.float32),
        "token_weights": torch.tensor([c.token_weight for c in rows], dtype=torch.float32),
    }


def report(samples: Sequence[Sample]) -> dict[str, float]:
    """Means over the clean rollouts, and how many were clean."""
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    correct = sum(sample.outcome is Outcome.CORRECT for sample in samples)
    n = max(1, len(rewards))
    return {
        "reward": sum(r.total for r in rewards) / n,
        "accuracy": correct / n,
        "format_errors": sum(r.format for r in rewards) / n,
        "turns": sum(s.episode.turns for s in samples if s.reward is not None) / n,
        "rollouts": float(len(samples)),
        "clean": float(len(rewards)),
    }


@contextmanager
def _open_engine(config: GrpoConfig, model: Any, renderer: ChatMLRenderer) -> Iterator[SlotEngine]:
    """Over the parameters as they lie now: the trainer has moved them to their device."""
    engine = SlotEngine(
        model,
        turn_end_id=renderer.turn_end_id,
        slots=config.engine.slots,
        context=config.engine.context,
        threads=config.threads,
        step_tokens=config.engine.step_tokens,
    )
    asyncio.run(engine.__aenter__())
    try:
        yield engine
    finally:
        asyncio.run(engine.__aexit__(None, None, None))


def _sample(source: RolloutSource, engine: SlotEngine, update: int) -> Sequence[Sample]:
    """Rollouts under the weights as they are now: those after `update` steps."""
    engine.set_weights(update)

    async def gather() -> Sequence[Sample]:
        return await source(update, engine)

    return asyncio.run(gather())


def _rows(sample: Sample, renderer: Renderer, max_tokens: int) -> list[Row]:
    try:
        rows = rows_from_episode(sample.episode, renderer, need_logprobs=True)
    except RowError as error:
        raise RunFailed(f"a rollout cannot be trained as it was recorded: {error}") from error
    refused = admit(rows, max_tokens)[1]
    if refused:
        raise RunFailed(f"rollout row {refused[0].id} cannot be trained: {refused[0].reason}")
    return rows


def _weighted(rollouts: Sequence[tuple[list[Row], float]], config: GrpoConfig) -> list[CreditedRow]:
    tokens = [sum(int(row.trained.sum()) for row in rows) for rows, _ in rollouts]
    weights = token_weights(tokens, config.objective.denominator) if rollouts else []
    return [
        CreditedRow(row, gain, weight) for (rows, gain), weight in zip(rollouts, weights, strict=True) for row in rows
    ]


def _micro_batches(credited: Sequence[CreditedRow], budget: int) -> list[dict[str, Tensor]]:
    order = sorted(range(len(credited)), key=lambda i: len(credited[i].row))
    shapes = [Shape(1, len(c.row)) for c in credited]
    return [collate_credited([credited[i] for i in part]) for part in pack(order, shapes, budget)]
