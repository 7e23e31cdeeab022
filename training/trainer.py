"""The trainer under all four stages: `transformers.Trainer` fed with whole micro-batches.

* Its data is a plan: item i is micro-batch i. Order, size and number of the micro-batches are fixed before the first
  step, so a resumed run sees what an uninterrupted one would have seen.
* Every loss is a sum over the micro-batch divided by counts of the whole optimizer step (`denominators`, summed over
  micro-batches and processes). How a step is cut into micro-batches or processes does not change its gradient.
* A gradient that is not finite, or larger than the config's limit, ends the run (`RunFailed`) before the step is taken.
* A checkpoint counts once it is whole: its last file is a mark. One cut short by a crash is not resumed from.
* One metrics record a step; its values are of the whole step, all micro-batches and processes together.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainingArguments

from configs.errors import RunFailed, StorageError, boundary
from training.checkpoint import ExpertSafeTrainerMixin
from training.metrics import Metrics, Progress
from training.processes import has_accelerator
from training.scorer import Scores
from training.train_config import OptimizerConfig, StageConfig

COMPLETE = "complete"
"""The mark of a whole checkpoint."""


class Objective(NamedTuple):
    loss: Tensor
    """Scalar: this micro-batch's part of the step's loss, before the balancing loss."""
    metrics: dict[str, float]
    """Parts that add up over the micro-batches of the step."""


class Plan(Dataset[Any]):
    """Micro-batch i of a run is `make(i)`."""

    def __init__(self, length: int, make: Callable[[int], Mapping[str, Tensor]]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Mapping[str, Tensor]:
        return self._make(index)


class StageTrainer(ExpertSafeTrainerMixin, Trainer):
    """Subclasses give `denominators` and `objective`."""

    loss_is_scaled_for_ga = True
    """Told to the base class: the loss is divided by the step's counts already."""
    lr_scheduler: Any

    def __init__(
        self,
        config: StageConfig,
        model: Any,
        plan: Plan,
        folder: Path,
        metrics: Metrics,
        *,
        steps: int,
        accumulate: int = 1,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(
            model=model,
            args=_arguments(config, folder, steps, accumulate),
            train_dataset=plan,
            data_collator=_only_item,
        )
        self.remove_callback(PrinterCallback)
        self._config = config
        self._metrics = metrics
        self._progress = progress
        self._sums: dict[str, float] = {}
        self._ticked = time.monotonic()

    # ---- what a stage defines ----

    def denominators(self, batch: Mapping[str, Tensor]) -> Tensor:
        """[k]: this micro-batch's share of each count the step's loss is divided by."""
        raise NotImplementedError

    def objective(self, model: Any, batch: Mapping[str, Tensor], totals: Tensor) -> tuple[Objective, Scores]:
        """The loss of one micro-batch, given the step's counts [k]."""
        raise NotImplementedError

    # ---- the base class's hooks ----

    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | None]:
        batches = list(islice(epoch_iterator, num_batches))
        if not batches:
            return batches, None
        totals = sum(self.denominators(batch) for batch in batches).to(device)  # type: ignore[union-attr]
        if self.args.world_size > 1:
            totals = self.accelerator.gather(totals[None]).sum(0)
        return batches, totals

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        objective, scores = self.objective(model, inputs, num_items_in_batch)
        self.tally(objective.metrics | {"tokens": float(inputs["attention_mask"].sum())})
        # Gradients are averaged over processes, while the parts of the loss add up.
        loss: Tensor = objective.loss * self.accelerator.num_processes
        if scores.balance is not None:
            share = 1.0 / self.current_gradient_accumulation_steps
            loss = loss + self._config.router_balance * share * scores.balance
        return loss

    def score(self, model: Any, batch: Mapping[str, Tensor], *, entropy: bool = False, train: bool = True) -> Scores:
        """Scores of the batch's trained tokens under `model`; `train` asks for the balancing loss too."""
        scores: Scores = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            trained=batch["trained"],
            entropy=entropy,
            balance=train and self._config.router_balance > 0,
        )
        return scores

    def tally(self, parts: Mapping[str, float]) -> None:
        """Add to the step's metrics."""
        for name, part in parts.items():
            self._sums[name] = self._sums.get(name, 0.0) + part

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            factor = partial(rate_factor, steps=num_training_steps, config=self._config.optimizer)
            self.lr_scheduler = LambdaLR(self.optimizer if optimizer is None else optimizer, factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        value, limit = float(norm), self._config.optimizer.stop_above
        step = self.state.global_step + 1
        if not torch.isfinite(torch.tensor(value)):
            raise RunFailed(f"step {step}: the gradient is not finite; nothing of this step was applied")
        if limit is not None and value > limit:
            raise RunFailed(f"step {step}: gradient norm {value:.3g} is above the limit of {limit:g}")
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" not in logs:  # the base class's summary of the whole run
            return
        now = time.monotonic()
        values = {"loss": logs["loss"], "grad_norm": float(logs["grad_norm"]), "lr": logs["learning_rate"]}
        values |= self._totals() | {"seconds": now - self._ticked}
        self._sums, self._ticked = {}, now
        self.callback_handler.on_log(self.args, self.state, self.control, dict(values))
        if self.is_world_process_zero():
            self._metrics.append(self.state.global_step, values)
            if self._progress:
                self._progress(self.state.global_step, self.state.max_steps, values)

    def _totals(self) -> dict[str, float]:
        """The tallies of every process together."""
        if self.args.world_size == 1:
            return self._sums
        names = sorted(self._sums)
        local = torch.tensor([self._sums[name] for name in names], dtype=torch.float32, device=self.args.device)
        return dict(zip(names, self.accelerator.reduce(local, "sum").tolist(), strict=True))

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: the base class's estimate is wrong for mixtures of experts."""
        return 0

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        with boundary(StorageError, f"{folder}: cannot write the checkpoint"):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                (folder / COMPLETE).touch()


def rate_factor(step: int, *, steps: int, config: OptimizerConfig) -> float:
    """Factor on the learning rate of step 0, 1, ... of `steps`. No step of the run has rate 0 (transformers' do)."""
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    passed = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, passed)))
    return max(0.0, 1.0 - passed) if config.schedule == "linear" else 1.0


def _only_item(items: Sequence[Any]) -> Any:
    """The loader's batches hold one item, which is a micro-batch."""
    return items[0]


def _arguments(config: StageConfig, folder: Path, steps: int, accumulate: int) -> TrainingArguments:
    optimizer = config.optimizer
    return TrainingArguments(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=steps,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=accumulate,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        learning_rate=optimizer.lr,
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.beta1,
        adam_beta2=optimizer.beta2,
        adam_epsilon=optimizer.epsilon,
        max_grad_norm=optimizer.clip,
        bf16=config.precision == "bf16",
        activation_checkpointing=config.activation_checkpointing,
        deepspeed=str(config.deepspeed) if config.deepspeed else None,
        use_cpu=config.deepspeed is None and not has_accelerator(),
        accelerator_config={"use_configured_state": config.deepspeed is not None},
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_steps=config.save_every,
        save_total_limit=2,
        # Experts are one tensor a layer, so every parameter is used in every pass.
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
    )
