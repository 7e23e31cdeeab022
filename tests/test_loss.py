"""The objectives against closed forms, in float64; and the plan of batches that their denominators rest on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the train extra is not installed")

import torch

from training.collate import Shape, collate, plan
from training.loss import advantages, dpo_loss, grpo_loss, k3, masked_nll, token_weights
from training.rows import Row
from training.train_config import PolicyTerms


def column(*values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def test_nll_is_the_weighted_token_mean_however_the_step_is_cut():
    logp, weights = column(-1.0, -2.0, -4.0, grad=True), column(1.0, 1.0, 0.5)
    whole = masked_nll(logp, weights, 2.5)
    assert whole.item() == pytest.approx((1 + 2 + 2) / 2.5)
    parts = masked_nll(logp[:1], weights[:1], 2.5) + masked_nll(logp[1:], weights[1:], 2.5)
    assert parts.item() == pytest.approx(whole.item(), abs=1e-15)
    whole.backward()
    assert logp.grad.tolist() == pytest.approx([-0.4, -0.4, -0.2])


def test_dpo_is_the_logistic_loss_of_the_difference_of_log_ratios():
    policy = column(-3.0, -5.0, -2.0, -1.0, grad=True).view(2, 2)
    policy.retain_grad()
    terms = dpo_loss(policy, column(-4.0, -4.5, -2.0, -1.0).view(2, 2), beta=0.2)
    margin = 0.2 * ((-3 + 4) - (-5 + 4.5))
    assert terms.margins.tolist() == pytest.approx([margin, 0.0])
    assert terms.losses.tolist() == pytest.approx([math.log1p(math.exp(-margin)), math.log(2)])
    terms.losses.sum().backward()
    slope = 0.2 / (1 + math.exp(margin))
    assert policy.grad.flatten().tolist() == pytest.approx([-slope, slope, -0.1, 0.1])


@pytest.mark.parametrize(
    ("rewards", "by_std", "expected"),
    [
        ([1.0, 0.0, 0.0, 0.0], False, [0.75, -0.25, -0.25, -0.25]),
        ([1.0, 0.0, None, 0.2], False, [0.6, -0.4, None, -0.2]),
        ([1.0, 0.0, None, 0.0, 1.0], True, [1.0, -1.0, None, -1.0, 1.0]),
        ([0.1, 0.1, 0.1], True, [0.0, 0.0, 0.0]),  # their rounded mean is not 0.1
        ([None, 1.0], True, [None, 0.0]),
        ([None, None], False, [None, None]),
        ([], False, []),
    ],
)
def test_advantages(rewards, by_std, expected):
    assert advantages(rewards, by_std=by_std) == [e if e is None else pytest.approx(e) for e in expected]


@pytest.mark.parametrize(("denominator", "expected"), [("rollout", [1 / 4, 1 / 12]), ("token", [1 / 8, 1 / 8])])
def test_token_weights_give_each_rollout_or_each_token_one_vote(denominator, expected):
    weights = token_weights([2, 6], denominator)
    assert weights == pytest.approx(expected)
    assert weights[0] * 2 + weights[1] * 6 == pytest.approx(1.0)


PLAIN = PolicyTerms(clip_low=0.2, clip_high=0.3, kl=0.0, kl_entropy=0.0, tau=-1.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),  # on policy: the policy gradient itself
        (1.4, 1.0, 1.3, 0.0),  # good and already likelier: clipped above
        (0.5, 1.0, 0.5, 0.5),  # good and less likely: never clipped
        (0.5, -1.0, -0.8, 0.0),  # bad and already less likely: clipped below
        (1.4, -1.0, -1.4, -1.4),  # bad and likelier: never clipped
    ],
)
def test_the_clipped_ratio(ratio, advantage, gain, slope):
    logp = column(math.log(ratio) - 2.0, grad=True)
    terms = grpo_loss(logp, column(-2.0), None, column(advantage), column(0.5), PLAIN)
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(-0.5 * gain)
    assert logp.grad.item() == pytest.approx(-0.5 * slope)
    assert terms.clipped.item() == (slope == 0.0)


def test_kl_weighs_unlikely_tokens_of_bad_rollouts_more():
    terms = PolicyTerms(clip_low=0.2, clip_high=0.2, kl=0.1, kl_entropy=0.4, tau=-1.0)
    logp, reference = column(-2.0, -0.5, -2.0, -2.0, grad=True), column(-1.5, -1.5, -1.5, -1.5)
    advantage = column(-1.0, -1.0, 1.0, 0.0)
    result = grpo_loss(logp, logp.detach(), reference, advantage, column(1.0, 1.0, 1.0, 1.0), terms)
    result.loss.backward()
    kl = [math.exp(d) - d - 1 for d in (0.5, -1.0, 0.5, 0.5)]
    beta = [0.5, 0.1, 0.1, 0.1]  # entropy control: negative advantage and log-probability below tau
    assert result.kl.tolist() == pytest.approx(kl)
    assert result.loss.item() == pytest.approx(sum(b * k for b, k in zip(beta, kl, strict=True)) + 1)
    slopes = [b * (1 - math.exp(d)) for b, d in zip(beta, (0.5, -1.0, 0.5, 0.5), strict=True)]
    assert logp.grad.tolist() == pytest.approx([s - a for s, a in zip(slopes, advantage.tolist(), strict=True)])


@given(st.floats(-30, 0), st.floats(-30, 0))
def test_k3_is_never_negative_and_zero_where_both_agree(a, b):
    assert k3(column(a), column(b)).item() >= 0
    assert k3(column(a), column(a)).item() == 0


def test_equal_rewards_leave_the_kl_term_alone():
    gains = [g for g in advantages([0.3, 0.3]) if g is not None]
    terms = PolicyTerms(clip_low=0.2, clip_high=0.2, kl=0.1, kl_entropy=0.4, tau=0.0)
    logp = column(-2.0, -2.0, grad=True)
    grpo_loss(logp, logp.detach(), column(-1.0, -1.0), column(*gains), column(0.5, 0.5), terms).loss.backward()
    assert logp.grad.tolist() == pytest.approx([0.05 * (1 - math.e)] * 2)


SHAPES = st.lists(st.builds(Shape, st.integers(1, 3), st.integers(2, 40)), min_size=1, max_size=40)


@given(shapes=SHAPES, budget=st.integers(1, 120), seed=st.integers(0, 9), per_step=st.integers(1, 3))
def test_a_plan_holds_every_item_once_an_epoch_within_the_budget(shapes, budget, seed, per_step):
    batches = plan(shapes, budget, seed, per_step, epochs=2, steps=None)
    assert len(batches) % per_step == 0
    seen = [i for batch in batches for i in batch]
    n = len(shapes)
    assert sorted(seen[:n]) == sorted(seen[n : 2 * n]) == list(range(n))
    for batch in batches:
        size = sum(shapes[i].rows for i in batch) * max(shapes[i].longest for i in batch)
        assert size <= budget or len(batch) == 1
    steps = len(batches) // per_step
    assert plan(shapes, budget, seed, per_step, epochs=1, steps=steps) == batches


def test_another_seed_is_another_order_and_like_lengths_share_batches():
    shapes = [Shape(1, n) for n in np.random.default_rng(0).integers(10, 400, 300).tolist()]
    one, two = (plan(shapes, 2000, seed, 1, epochs=1, steps=None) for seed in (0, 1))
    assert one != two
    padded = sum(len(batch) * max(shapes[i].longest for i in batch) for batch in one)
    assert padded < 1.1 * sum(shape.longest for shape in shapes)
    firsts = [shapes[batch[0]].longest for batch in one]
    assert firsts != sorted(firsts)


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=9), min_size=1, max_size=5))
def test_a_batch_trains_what_its_rows_train_and_no_padding(masks):
    rows = [
        Row(str(i), np.arange(1, len(m) + 1, dtype=np.int32), np.array(m), -np.array(m, np.float32), 1.0 + i)
        for i, m in enumerate(masks)
    ]
    batch = collate(rows)
    for i, m in enumerate(masks):
        assert batch["trained"][i].tolist() == m + [False] * (batch["trained"].shape[1] - len(m))
        assert batch["attention_mask"][i].sum() == len(m)
        assert batch["input_ids"][i, : len(m)].tolist() == list(range(1, len(m) + 1))
    assert batch["weights"].tolist() == [1.0 + i for i in range(len(masks))]
    assert torch.equal(batch["logprobs"] != 0, batch["trained"])
