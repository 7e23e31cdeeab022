"""The stage dpo: whole trajectories compared, plus lambda times the next-token loss on the chosen one.

* The log-probability of a trajectory is the sum over all its rows, so an episode whose context was rewritten counts
  whole and exactly. (trl's DPOTrainer holds one row a side, which cannot say this: hence a trainer of our own.)
* Observations are in neither log-probability, nor is anything else the model did not write.
* The reference is the checkpoint the stage starts from: before the first step every log-ratio must be 0, or the run
  fails.
* A pair is trained whole or refused whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs.errors import InputError, RunFailed
from inference.records import read_records
from training.collate import Shape, collate
from training.loss import dpo_loss, masked_nll
from training.metrics import Metrics, Progress
from training.policy import frozen_reference, open_policy
from training.rows import Pair, Refusal, Renderer, Row, RowError, admit, rows_from_episode
from training.scorer import Scores
from training.stage import plan_data, run_stage, write_refusals
from training.train_config import DpoConfig
from training.trainer import Objective, Plan, StageTrainer

_SAME = 1e-3
"""Nats a trajectory: what two evaluations of one model may differ by."""


@dataclass(frozen=True, slots=True)
class PairRows:
    id: str
    chosen: list[Row]
    rejected: list[Row]

    @property
    def shape(self) -> Shape:
        rows = [*self.chosen, *self.rejected]
        return Shape(len(rows), max(len(row) for row in rows))


class DpoTrainer(StageTrainer):
    def __init__(self, config: DpoConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._dpo = config
        self._reference = frozen_reference(config, self)

    def denominators(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Pairs, and trained tokens of chosen sides."""
        chosen = batch["trained"][batch["sides"] % 2 == 0].sum()
        return torch.stack([batch["sides"].max() // 2 + 1, chosen]).float()

    def objective(self, model: Any, batch: Mapping[str, Tensor], totals: Tensor) -> tuple[Objective, Scores]:
        scores = self.score(model, batch)
        with torch.no_grad():
            reference = self.score(self._reference, batch, train=False)
        sides = batch["sides"][scores.rows]
        policy, base = _by_pair(scores.log_probs, sides), _by_pair(reference.log_probs, sides)
        if self.state.global_step == 0:
            _require_same(policy.detach(), base)
        terms = dpo_loss(policy, base, self._dpo.beta)
        chosen = masked_nll(scores.log_probs, (sides % 2 == 0).float(), totals[1])
        loss = terms.losses.sum() / totals[0] + self._dpo.sft_weight * chosen
        return Objective(loss, _report(terms.losses, terms.margins, policy - base, chosen, float(totals[0]))), scores


def run(config: DpoConfig, out: Path, progress: Progress | None = None) -> Path:
    """Train the stage in `out`; the finished model folder. Raises InputError, StorageError, RunFailed."""
    return run_stage("dpo", config, out, config.data, partial(_build, config, out, progress))


def load_pairs(config: DpoConfig, renderer: Renderer) -> tuple[list[PairRows], list[Refusal]]:
    """Every pair that can be trained whole, in file order, and what was refused. Raises InputError if none is left."""
    pairs: list[PairRows] = []
    refused: list[Refusal] = []
    for pair in _records(config.data):
        try:
            sides = [
                rows_from_episode(episode, renderer, name=f"{pair.id}/{side}")
                for side, episode in (("chosen", pair.chosen), ("rejected", pair.rejected))
            ]
        except RowError as error:
            refused.append(Refusal(pair.id, str(error)))
            continue
        others = [refusal for rows in sides for refusal in admit(rows, config.max_tokens)[1]]
        if others or not all(sides):
            refused += others or [Refusal(pair.id, "one side holds no step")]
            continue
        pairs.append(PairRows(pair.id, *sides))
    if not pairs:
        reason = f"; the first of {len(refused)} refusals: {refused[0].id}: {refused[0].reason}" if refused else ""
        raise InputError(f"{config.data[0]}: holds no pair that can be trained{reason}")
    return pairs, refused


def collate_pairs(pairs: Sequence[PairRows]) -> dict[str, Tensor]:
    """A batch of all their rows, with `sides` [B]: 2p for the chosen rows of pair p, 2p + 1 for the rejected."""
    sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    numbers = [number for number, side in enumerate(sides) for _ in side]
    return {**collate([row for side in sides for row in side]), "sides": torch.tensor(numbers)}


def _build(config: DpoConfig, out: Path, progress: Progress | None, folder: Path, metrics: Metrics) -> StageTrainer:
    model, renderer = open_policy(config)
    pairs, refused = load_pairs(config, renderer)
    write_refusals(out, refused)
    plan, steps = plan_data(config, [pair.shape for pair in pairs])
    batches = Plan(len(plan), lambda i: collate_pairs([pairs[k] for k in plan[i]]))
    return DpoTrainer(
        config, model, batches, folder, metrics, steps=steps, accumulate=config.accumulate, progress=progress
    )


def _records(files: Sequence[Path]) -> Iterator[Pair]:
    for file in files:
        yield from read_records(file, Pair)


def _by_pair(log_probs: Tensor, sides: Tensor) -> Tensor:
    """[n] -> [p, 2]: the log-probability of each side."""
    pairs = int(sides.max()) // 2 + 1
    return log_probs.new_zeros(2 * pairs).index_add(0, sides, log_probs).view(pairs, 2)


def _require_same(policy: Tensor, reference: Tensor) -> None:
    apart = float((policy - reference).abs().max())
    if apart > _SAME:
        raise RunFailed(f"the reference is not the model dpo starts from: log-probabilities differ by {apart:.3g} nats")


def _report(losses: Tensor, margins: Tensor, ratios: Tensor, chosen: Tensor, pairs: float) -> dict[str, float]:
    parts = {
        "dpo": losses.detach().sum(),
        "accuracy": (margins > 0).float().sum(),
        "margin": margins.sum(),
        "chosen_ratio": ratios[:, 0].detach().sum(),
        "rejected_ratio": ratios[:, 1].detach().sum(),
    }
    return {name: float(part) / pairs for name, part in parts.items()} | {"sft": float(chosen.detach())}
