"""Batches: rows padded into tensors, and the plan that says which items go into which micro-batch.

* `collate` pads on the right with 0 and never trains a padded position: `trained` there is False, `attention_mask` 0.
  Nothing else of a batch depends on the padding, so the padding id has no meaning.
* A plan is a pure function of (shapes, budget, seed): the same data order on every machine and after every resume.
  Each epoch holds every item exactly once. Items of like length share a micro-batch, whose padded size
  (rows x longest row) stays within the budget; an item larger than the budget stands alone.
* The plan's length is a multiple of the micro-batches of one optimizer step: the last step is filled up with the next
  epoch's first ones.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.rows import Row

_WINDOW = 32
"""Micro-batches whose items are sorted by length together: wide enough to cut padding, narrow enough to stay random."""


class Shape(NamedTuple):
    """Size of one item of a plan: a row, or all the rows of a pair."""

    rows: int
    longest: int
    """Tokens of its longest row."""


def collate(rows: Sequence[Row]) -> dict[str, Tensor]:
    """A batch of B rows in order, T tokens each.

    `input_ids` int64 [B, T]; `attention_mask` int64 [B, T], 1 on real tokens; `trained` bool [B, T], the token is a
    target; `logprobs` float32 [B, T], the engine's, 0 where none; `weights` float32 [B], of each row's tokens.
    """
    shape = (len(rows), max(len(row) for row in rows))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    trained, logprobs = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row.input_ids
        mask[i, : len(row)] = 1
        trained[i, : len(row)] = row.trained
        logprobs[i, : len(row)] = row.logprobs
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.from_numpy(mask),
        "trained": torch.from_numpy(trained),
        "logprobs": torch.from_numpy(logprobs),
        "weights": torch.tensor([row.weight for row in rows], dtype=torch.float32),
    }


def plan(
    shapes: Sequence[Shape], budget: int, seed: int, per_step: int, *, epochs: float, steps: int | None
) -> list[list[int]]:
    """Micro-batches of item indices, `per_step` to an optimizer step, for this many passes or exactly these steps."""
    stream = _stream(shapes, budget, seed)
    if steps is not None:
        return list(islice(stream, steps * per_step))
    items = max(1, round(epochs * len(shapes)))
    batches: list[list[int]] = []
    while items > 0 or len(batches) % per_step:
        batches.append(next(stream))
        items -= len(batches[-1])
    return batches


def pack(order: Sequence[int], shapes: Sequence[Shape], budget: int) -> list[list[int]]:
    """Cut `order` into consecutive micro-batches within the budget."""
    batches: list[list[int]] = []
    rows = longest = 0
    for i in order:
        rows, longest = rows + shapes[i].rows, max(longest, shapes[i].longest)
        if not batches or rows * longest > budget:
            batches.append([])
            rows, longest = shapes[i]
        batches[-1].append(i)
    return batches


def _stream(shapes: Sequence[Shape], budget: int, seed: int) -> Iterator[list[int]]:
    return chain.from_iterable(_epoch(shapes, budget, np.random.default_rng((seed, n))) for n in count())


def _epoch(shapes: Sequence[Shape], budget: int, rng: np.random.Generator) -> list[list[int]]:
    order = rng.permutation(len(shapes)).tolist()
    mean = max(1.0, sum(s.rows * s.longest for s in shapes) / len(shapes))
    window = max(1, int(_WINDOW * budget / mean))
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        part = sorted(order[start : start + window], key=lambda i: shapes[i].longest)
        batches += pack(part, shapes, budget)
    return [batches[i] for i in rng.permutation(len(batches))]
