"""Statistics against published and independently computed values."""

import math
import random

import pytest

from eval.stats import avg_at_k, bootstrap, clustered_se, mcnemar, paired, pass_at_k, sign_flip, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson(successes, trials, low, high):
    interval = wilson(successes, trials)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@pytest.mark.parametrize(
    ("clusters", "se"),
    [
        # inspect_ai 0.3.285, stderr(cluster=...).
        ([[1, 0], [1, 0]], 0.0),
        ([[1, 1, 1], [0, 0, 0]], 0.5),
        ([[1], [0], [1], [1]], 0.25),
        ([[1], [0]], 0.5),
    ],
)
def test_clustered_error(clusters, se):
    assert clustered_se(clusters) == pytest.approx(se)


def test_one_question_has_no_error_of_its_own():
    assert math.isnan(clustered_se([[1, 0]]))
    assert math.isnan(avg_at_k([[1, 0]]).se)


def test_avg_at_k_weighs_questions_equally():
    assert avg_at_k([[1, 1, 1, 1], [0]]).mean == 0.5


@pytest.mark.parametrize("correct", [0, 1, 7, 20])
def test_with_one_sample_a_question_the_interval_is_wilsons(correct):
    interval = avg_at_k([[1.0]] * correct + [[0.0]] * (20 - correct)).interval
    expected = wilson(correct, 20)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_repeating_a_sample_tells_nothing_new():
    once = avg_at_k([[1.0], [0.0], [1.0], [1.0], [0.0]]).interval
    thrice = avg_at_k([[1.0] * 3, [0.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3]).interval
    assert (once.low, once.high) == pytest.approx((thrice.low, thrice.high))


@pytest.mark.parametrize(
    ("samples", "correct", "k", "value"),
    [
        # openai/human-eval evaluation.py; fewer samples than k are undefined, as in inspect_ai.
        (10, 3, 1, 0.3),
        (10, 3, 8, 1.0),
        (64, 1, 16, 0.25),
        (4, 2, 4, 1.0),
        (3, 0, 2, 0.0),
        (1, 1, 2, math.nan),
        (0, 0, 1, math.nan),
    ],
)
def test_pass_at_k(samples, correct, k, value):
    assert pass_at_k(samples, correct, k) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    # Twice the binomial tail, by hand.
    [(0, 0, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (6, 1, 16 / 128), (3, 3, 1.0), (10, 2, 158 / 4096)],
)
def test_mcnemar(gained, lost, p):
    assert mcnemar(gained, lost) == pytest.approx(p)


def test_sign_flips_of_whole_points_are_mcnemar():
    assert sign_flip([1.0] * 6 + [-1.0] + [0.0] * 9, seed=0) == pytest.approx(mcnemar(6, 1))
    assert sign_flip([], seed=0) == 1.0
    drawn = sign_flip([1.0] * 20 + [-1.0] * 8 + [0.0] * 30, seed=3)
    assert drawn == pytest.approx(mcnemar(20, 8), abs=0.01)


def test_the_bootstrap_agrees_with_the_standard_error():
    values = [1.0] * 30 + [-1.0] * 10 + [0.0] * 60
    interval = bootstrap(values, seed=1)
    assert (interval.low, interval.high) == pytest.approx((0.2 - 1.96 * 0.06, 0.2 + 1.96 * 0.06), abs=0.01)
    assert bootstrap(values, seed=1) == interval


def test_a_true_null_is_rejected_as_rarely_as_promised():
    rng = random.Random(5)
    rejected = 0
    for _ in range(200):
        pairs = [(rng.choice([0, 0.5, 1]), rng.choice([0, 0.5, 1])) for _ in range(12)]
        a, b = zip(*pairs, strict=True)
        rejected += paired(a, b, single=False, seed=0).p < 0.05
    assert rejected <= 20


def test_paired_runs():
    a, b = [0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1, 1, 0]
    result = paired(a, b, single=True)
    assert (result.questions, result.difference, result.p) == (8, 0.75, mcnemar(6, 0))
    assert 0.25 < result.interval.low < 0.75 < result.interval.high <= 1
    with pytest.raises(ValueError, match="argument 2 is longer"):
        paired([1], [1, 0], single=True)
