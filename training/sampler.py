"""Drawing tokens: temperature, nucleus, and one random stream per request.

* The random number for a token depends on (seed, position) alone, so what a request samples does not depend on the
  batch it ran in, beyond the rounding of its logits (about 1e-6).
* A token is drawn by the inverse of the cumulative distribution, in float64 and in vocabulary order.
* Log-probabilities are those of the distribution drawn from, after temperature and nucleus, in nats. Temperature 0
  takes the likeliest token and reports its log-probability in the model's own distribution.
* The nucleus is the smallest set of likeliest tokens that holds at least `top_p` of the probability.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SEEDS = 2**64 - 59  # the largest prime of 64 bits, so that wide seeds fold without dropping their upper half
_NUCLEUS_GUESS = 64


@dataclass(frozen=True, slots=True)
class Draws:
    """How each row of a batch is drawn; arrays of length N."""

    temperature: NDArray[np.float64]
    top_p: NDArray[np.float64]
    uniform: NDArray[np.float64]
    """In [0, 1); unused where temperature is 0."""

    @classmethod
    def of(cls, temperature: list[float], top_p: list[float], seeds: list[int], positions: list[int]) -> Self:
        """Seeds are any integers; positions count the tokens before the one drawn."""
        return cls(np.array(temperature), np.array(top_p), uniforms(seeds, positions))


def uniforms(seeds: list[int], positions: list[int]) -> NDArray[np.float64]:
    """One number in [0, 1) per (seed, position): SplitMix64 (Steele, Lea & Flood 2014), its top 53 bits."""
    state = _mix(np.array([seed % _SEEDS for seed in seeds], dtype=np.uint64))
    counter = np.array(positions, dtype=np.uint64) + np.uint64(1)
    hashed: NDArray[np.uint64] = _mix(state + _GOLDEN * counter) >> np.uint64(11)
    return hashed.astype(np.float64) * 2.0**-53


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def sample(logits: Tensor, draws: Draws) -> tuple[list[int], list[float]]:
    """One token id and its log-probability for each row of `logits` [N, V]. Raises ValueError on logits not finite."""
    scores = logits.to("cpu", torch.float64)
    greedy = torch.from_numpy(draws.temperature == 0)
    if not bool((draws.temperature == 1).all()):
        scores = scores / torch.from_numpy(np.where(draws.temperature == 0, 1.0, draws.temperature))[:, None]
    mass = torch.softmax(scores, dim=-1)
    if not bool(mass.isfinite().all()):
        raise ValueError("the model's logits are not finite")
    mass = _nucleus(mass, torch.from_numpy(np.where(draws.temperature == 0, 1.0, draws.top_p)))
    cumulative = mass.cumsum(-1)
    total = cumulative[:, -1:]
    # Strictly below the total, so that rounding never picks a token without probability.
    target = torch.minimum(torch.from_numpy(draws.uniform)[:, None] * total, total.nextafter(torch.zeros_like(total)))
    drawn = torch.searchsorted(cumulative, target, right=True)
    chosen = torch.where(greedy[:, None], scores.argmax(-1, keepdim=True), drawn)
    logprobs = (mass.gather(-1, chosen) / total).log()
    return chosen[:, 0].tolist(), logprobs[:, 0].tolist()


def _nucleus(mass: Tensor, top_p: Tensor) -> Tensor:
    """`mass` [N, V] with everything outside each row's nucleus at zero; rows with top_p 1 stay as they are."""
    rows = (top_p < 1).nonzero()[:, 0]
    if not len(rows):
        return mass
    mass = mass.clone()
    wanted = top_p[rows, None]
    # A full sort costs four times a guess at the nucleus' size, and the guess nearly always holds.
    likeliest, ids = mass[rows].topk(min(_NUCLEUS_GUESS, mass.shape[-1]))
    enough = likeliest.sum(-1) >= wanted[:, 0]
    mass[rows[enough]] = _kept(likeliest[enough], ids[enough], wanted[enough], mass.shape[-1])
    rest = rows[~enough]
    if len(rest):
        likeliest, ids = mass[rest].sort(descending=True, stable=True)
        mass[rest] = _kept(likeliest, ids, wanted[~enough], mass.shape[-1])
    return mass


def _kept(likeliest: Tensor, ids: Tensor, top_p: Tensor, vocabulary: int) -> Tensor:
    before = likeliest.cumsum(-1) - likeliest
    kept = torch.where(before < top_p, likeliest, 0.0)
    return likeliest.new_zeros(len(likeliest), vocabulary).scatter_(-1, ids, kept)
