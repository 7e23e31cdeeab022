"""The stages mid and sft: next-token loss on the trained tokens, their mean over each optimizer step.

* mid trains one target turn in its context (`Target` records); sft trains every thought and action of whole episodes,
  each in the context it was sampled in, and no observation.
* `run` returns the finished model folder; see `training.stage` for what else it leaves, and how it resumes.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from configs.errors import InputError
from inference.records import read_records
from inference.types import Episode
from training.collate import Shape, collate
from training.loss import masked_nll
from training.metrics import Metrics, Progress
from training.policy import open_policy
from training.rows import Refusal, Renderer, Row, RowError, Target, admit, rows_from_episode, target_row
from training.scorer import Scores
from training.stage import plan_data, run_stage, write_refusals
from training.train_config import LmConfig
from training.trainer import Objective, Plan, StageTrainer


class LmTrainer(StageTrainer):
    def denominators(self, batch: Mapping[str, Tensor]) -> Tensor:
        return (batch["trained"] * batch["weights"][:, None]).sum()[None]

    def objective(self, model: Any, batch: Mapping[str, Tensor], totals: Tensor) -> tuple[Objective, Scores]:
        scores = self.score(model, batch)
        loss = masked_nll(scores.log_probs, batch["weights"][scores.rows], totals[0])
        return Objective(loss, {"trained": float(len(scores.log_probs))}), scores


def run(config: LmConfig, out: Path, progress: Progress | None = None) -> Path:
    """Train the stage in `out`. Raises InputError, StorageError, RunFailed."""
    return run_stage(config.stage, config, out, config.data, partial(_build, config, out, progress))


def _build(config: LmConfig, out: Path, progress: Progress | None, folder: Path, metrics: Metrics) -> StageTrainer:
    model, renderer = open_policy(config)
    rows, refused = load_rows(config, renderer)
    write_refusals(out, refused)
    plan, steps = plan_data(config, [Shape(1, len(row)) for row in rows])
    batches = Plan(len(plan), lambda i: collate([rows[k] for k in plan[i]]))
    return LmTrainer(
        config, model, batches, folder, metrics, steps=steps, accumulate=config.accumulate, progress=progress
    )


def load_rows(config: LmConfig, renderer: Renderer) -> tuple[list[Row], list[Refusal]]:
    """Every row that can be trained, in file order, and what was refused. Raises InputError when nothing is left."""
    rows: list[Row] = []
    refused: list[Refusal] = []
    for name, make in _records(config, renderer):
        try:
            made = make()
        except RowError as error:
            refused.append(Refusal(name, str(error)))
            continue
        kept, others = admit(made, config.max_tokens)
        rows += kept
        refused += others
    if not rows:
        reason = f"; the first of {len(refused)} refusals: {refused[0].id}: {refused[0].reason}" if refused else ""
        raise InputError(f"{config.data[0]}: holds nothing that can be trained{reason}")
    return rows, refused


def _records(config: LmConfig, renderer: Renderer) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    for file in config.data:
        if config.stage == "mid":
            for target in read_records(file, Target):
                yield target.id, partial(_target_rows, target, renderer)
        else:
            for episode in read_records(file, Episode):
                yield str(episode.key), partial(rows_from_episode, episode, renderer)


def _target_rows(target: Target, renderer: Renderer) -> list[Row]:
    return [target_row(target, renderer)]
