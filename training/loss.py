"""The objectives, as pure functions of per-token log-probabilities.

Shapes: n trained tokens of a micro-batch, in row order; p pairs. Only trained tokens get this far
(`training.scorer`), so an observation can enter no loss.

* `masked_nll`: -sum(w * logp) / `items`, where `items` is the sum of w over the whole optimizer step (all its
  micro-batches and processes). The step's loss is the token mean, however it is cut into micro-batches.
* `dpo_loss`: -log sigmoid(beta * ((pi_c - pi_r) - (ref_c - ref_r))) for each pair, over log-probabilities of whole
  trajectories (Rafailov et al. 2023, eq. 7). The stage adds lambda * `masked_nll` of the chosen side
  (MiroThinker-1.7, L_PO = E[L_DPO] + lambda * L_SFT(+)).
* `advantages`: A_i = R_i - mean(R) over the clean rollouts of a group, one vote a rollout however many rows it has.
  With `by_std`, divided by the group's population standard deviation (Flow-GRPO). Equal rewards, and a lone clean
  rollout, give 0 (the KL term stays); a rollout that is not clean has none, and stands in no baseline.
* `grpo_loss`: sum over tokens of u * (-min(rho A, clip(rho) A) + beta_t * k3), with rho = exp(logp - behaviour),
  k3 = exp(ref - logp) - (ref - logp) - 1, beta_t = beta + beta_entropy * 1[A < 0 and logp < tau] (log-probability of
  the current policy, detached: the indicator has no gradient). `token_weights` gives u: with "rollout", 1 / (N * T_i)
  for each of the T_i tokens of one of N rollouts (GRPO: every rollout weighs the same); with "token", u = 1 / sum(T_i)
  (DAPO: every token weighs the same, so long rollouts weigh more).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from training.train_config import PolicyTerms


def masked_nll(log_probs: Tensor, weights: Tensor, items: Tensor | float) -> Tensor:
    """log_probs, weights: [n]; returns a scalar."""
    return -(log_probs * weights).sum() / items


class DpoTerms(NamedTuple):
    losses: Tensor
    """[p]"""
    margins: Tensor
    """[p], beta * difference of log-ratios, detached: positive where the policy ranks the pair rightly."""


def dpo_loss(policy: Tensor, reference: Tensor, beta: float) -> DpoTerms:
    """policy, reference: [p, 2] log-probabilities of (chosen, rejected)."""
    ratios = policy - reference
    margins = beta * (ratios[:, 0] - ratios[:, 1])
    return DpoTerms(-F.logsigmoid(margins), margins.detach())


def advantages(rewards: Sequence[float | None], *, by_std: bool = False) -> list[float | None]:
    """One group's advantages; None in, None out."""
    clean = [r for r in rewards if r is not None]
    if not clean:
        return [None] * len(rewards)
    mean = sum(clean) / len(clean)
    spread = (sum((r - mean) ** 2 for r in clean) / len(clean)) ** 0.5
    # Equal rewards differ from their rounded mean by an ulp, which a division by the spread would blow up to 1.
    if spread <= 1e-9 * max(1.0, abs(mean)):
        return [None if r is None else 0.0 for r in rewards]
    scale = spread if by_std else 1.0
    return [None if r is None else (r - mean) / scale for r in rewards]


def token_weights(tokens: Sequence[int], denominator: Literal["rollout", "token"]) -> list[float]:
    """The weight u of the tokens of each rollout, given the trained tokens T_i of every rollout of the update."""
    if denominator == "token":
        return [1.0 / sum(tokens)] * len(tokens)
    return [1.0 / (len(tokens) * n) for n in tokens]


class GrpoTerms(NamedTuple):
    loss: Tensor
    """Scalar, this micro-batch's share of the update's loss."""
    kl: Tensor
    """[n], k3, detached."""
    clipped: Tensor
    """[n] bool: the clip decides the token's gradient, which is then zero."""


def grpo_loss(
    log_probs: Tensor,
    behaviour: Tensor,
    reference: Tensor | None,
    advantage: Tensor,
    weights: Tensor,
    terms: PolicyTerms,
) -> GrpoTerms:
    """All tensors [n]; `reference` None leaves the KL term out."""
    ratio = torch.exp(log_probs - behaviour)
    bounded = ratio.clamp(1.0 - terms.clip_low, 1.0 + terms.clip_high)
    gain = torch.minimum(ratio * advantage, bounded * advantage)
    clipped = (bounded * advantage < ratio * advantage).detach()
    if reference is None:
        return GrpoTerms(-(weights * gain).sum(), torch.zeros_like(ratio).detach(), clipped)
    kl = k3(log_probs, reference)
    unlikely = (advantage < 0) & (log_probs.detach() < terms.tau)
    beta = terms.kl + terms.kl_entropy * unlikely.to(log_probs.dtype)
    return GrpoTerms((weights * (beta * kl - gain)).sum(), kl.detach(), clipped)


def k3(log_probs: Tensor, reference: Tensor) -> Tensor:
    """Schulman's estimator of KL(policy || reference) at the sampled tokens: never negative, 0 where they agree."""
    difference = reference - log_probs
    return torch.expm1(difference) - difference
