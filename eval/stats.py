"""The statistics of an evaluation. Pure functions of numbers; every random draw comes from a seed that is passed in.

* An undefined quantity is NaN, never a flattering number.
* Samples of one question are not independent: every error and interval is taken over questions (clusters).
* Intervals are 95% and stay inside [0, 1] for shares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

Z95 = 1.959963984540054
"""97.5th percentile of the standard normal."""
_EXACT_FLIPS = 14
"""Up to so many questions all sign patterns are counted instead of drawn: 2^14 are few."""
_FLIPS = 20_000
_RESAMPLES = 10_000
_BLOCK = 500
"""Draws held in memory at a time."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, averaged first over the samples of each question and then over questions."""

    mean: float
    se: float
    """Standard error over questions; NaN for fewer than two."""
    interval: Interval
    questions: int
    samples: int
    """Samples in all, over all questions."""


def wilson(successes: float, trials: float) -> Interval:
    """Wilson's score interval of a share; NaN for no trials. `trials` may be an effective number."""
    if trials <= 0:
        return Interval(math.nan, math.nan)
    share = successes / trials
    z2 = Z95 * Z95
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    # At the ends the bound is exact; rounding would push it just inside.
    return Interval(0.0 if share == 0 else max(0.0, centre - half), 1.0 if share == 1 else min(1.0, centre + half))


def clustered_se(values: Sequence[Sequence[float]]) -> float:
    """Standard error of the mean of all values, clustered by question, with the C/(C-1) correction.

    `values` holds one sequence of values a question. NaN for fewer than two questions.
    """
    clusters = [cluster for cluster in values if cluster]
    if len(clusters) < 2:
        return math.nan
    count = sum(map(len, clusters))
    mean = sum(map(sum, clusters)) / count
    squares = sum((sum(cluster) - mean * len(cluster)) ** 2 for cluster in clusters)
    return math.sqrt(squares * len(clusters) / (len(clusters) - 1)) / count


def avg_at_k(values: Sequence[Sequence[float]]) -> Estimate:
    """Mean over questions of the mean over a question's samples; `values` in [0, 1], one sequence a question.

    The interval is Wilson's at the effective number of trials that the clustered error implies: with one sample a
    question it is Wilson's interval itself; where the error is 0 or undefined the questions are counted.
    """
    means = [[sum(cluster) / len(cluster)] for cluster in values if cluster]
    if not means:
        return Estimate(math.nan, math.nan, Interval(math.nan, math.nan), 0, 0)
    questions, samples = len(means), sum(map(len, values))
    mean = sum(m[0] for m in means) / questions
    se = clustered_se(means)
    variance = 0.0 if math.isnan(se) else se * se * (questions - 1) / questions
    trials = mean * (1 - mean) / variance if variance > 1e-12 else float(questions)
    trials = min(max(trials, 1.0), float(samples))
    return Estimate(mean, se, wilson(mean * trials, trials), questions, samples)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased chance that at least one of k samples is correct (Chen et al. 2021); NaN for fewer than k samples."""
    if k < 1 or samples < k:
        return math.nan
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Run b against run a on the same questions."""

    questions: int
    difference: float
    """Mean of b minus mean of a."""
    interval: Interval
    """Bootstrap over questions."""
    p: float
    """Two-sided."""
    test: str
    """Name of the test `p` comes from."""


def paired(a: Sequence[float], b: Sequence[float], *, single: bool, seed: int = 0) -> PairedTest:
    """Compare per-question scores of two runs, in the same order of questions.

    `single`: the scores are 0 or 1 from one answer each, so the exact McNemar test applies; otherwise a sign-flip
    permutation test. ValueError when the lengths differ.
    """
    differences = [after - before for before, after in zip(a, b, strict=True)]
    if not differences:
        return PairedTest(0, math.nan, Interval(math.nan, math.nan), math.nan, "none")
    interval = bootstrap(differences, seed)
    if single:
        p, test = mcnemar(sum(d > 0 for d in differences), sum(d < 0 for d in differences)), "exact McNemar"
    else:
        p, test = sign_flip(differences, seed), "sign-flip permutation"
    return PairedTest(len(differences), sum(differences) / len(differences), interval, p, test)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p of the discordant pairs under a fair coin; 1 when there are none."""
    pairs = gained + lost
    tail: float = sum(math.comb(pairs, i) for i in range(min(gained, lost) + 1)) / 2.0**pairs
    return min(1.0, 2 * tail)


def sign_flip(differences: Sequence[float], seed: int) -> float:
    """Two-sided p that the mean difference is 0 when every question's difference could as well have the other sign.

    Exact over all sign patterns for few questions; else from drawn ones, with the observed one counted.
    """
    moved = np.array([d for d in differences if d != 0], dtype=float)
    observed = abs(moved.sum()) - 1e-9
    if len(moved) <= _EXACT_FLIPS:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(moved))))
        return float((np.abs(signs @ moved) >= observed).mean())
    rng = np.random.default_rng(seed)
    extreme = 0
    for _ in range(_FLIPS // _BLOCK):
        signs = rng.integers(0, 2, size=(_BLOCK, len(moved))) * 2.0 - 1.0
        extreme += int((np.abs(signs @ moved) >= observed).sum())
    return (1 + extreme) / (1 + _FLIPS)


def bootstrap(values: Sequence[float], seed: int) -> Interval:
    """Percentile interval of the mean, questions drawn with replacement."""
    data = np.array(values, dtype=float)
    rng = np.random.default_rng(seed)
    blocks = [
        data[rng.integers(0, len(data), size=(_BLOCK, len(data)))].mean(axis=1) for _ in range(_RESAMPLES // _BLOCK)
    ]
    low, high = np.quantile(np.concatenate(blocks), [0.025, 0.975])
    return Interval(float(low), float(high))
