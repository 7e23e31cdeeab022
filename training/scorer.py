"""Scoring: log-probabilities of the trained tokens of a batch, and of nothing else.

* The head is applied to the positions whose next token is trained, and to no other: an observation has no
  log-probability, so it can enter no loss by mistake, and the vocabulary is paid for where it is needed.
* Many trained tokens are scored in chunks that the backward pass computes again, so memory does not grow with
  (tokens x vocabulary).
* Batches are padded on the right, so a causal model needs no padding mask to be exact on real tokens; none is passed,
  which keeps attention on its fast path. The router's balancing loss leaves the padding out.
* `add_scorer` patches `forward`, as trl's fused head does, so that wrappers (DDP, DeepSpeed, FSDP) run their hooks; a
  call without `trained` is the model's own.
"""

import types
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from configs.errors import InputError

_CHUNK_LOGITS = 32 * 2**20
"""Logits held at once (128 MiB in fp32)."""

_HEAD_TRANSFORMS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)


class Scores(NamedTuple):
    """n trained tokens, row by row, left to right."""

    log_probs: Tensor
    """[n] float32"""
    rows: Tensor
    """[n] int64, the batch row of each."""
    entropy: Tensor | None
    """[n] float32, nats, without gradient; None unless asked for."""
    balance: Tensor | None
    """Scalar, the router's load-balancing loss before its coefficient; None unless asked for or not a mixture."""


def add_scorer(model: Any, *, chunk_logits: int = _CHUNK_LOGITS) -> None:
    """Let `model(input_ids=, attention_mask=, trained=, entropy=, balance=)` return `Scores`.

    Raises InputError for a model whose head does more than project.
    """
    config = model.config.get_text_config()
    extra = [name for name in _HEAD_TRANSFORMS if getattr(config, name, None) is not None]
    if extra:
        raise InputError(f"{config.model_type} models are not trained here: their head applies {extra[0]}")

    def forward(self: Any, *args: Any, trained: Tensor | None = None, **kwargs: Any) -> Any:
        if trained is not None:
            return _score(self, trained, chunk_logits, **kwargs)
        # The class's own, not a bound one: a copy of the model (the engine's twin) must run on itself.
        return type(self).forward(self, *args, **kwargs)

    model.forward = types.MethodType(forward, model)


def _score(
    model: Any,
    trained: Tensor,
    chunk_logits: int,
    *,
    input_ids: Tensor,
    attention_mask: Tensor,
    entropy: bool = False,
    balance: bool = False,
) -> Scores:
    balance = balance and hasattr(model.config.get_text_config(), "num_experts_per_tok")
    options = {"output_router_logits": True} if balance else {}
    output = model.base_model(input_ids=input_ids, use_cache=False, **options)
    wanted = trained[:, 1:]
    hidden = output.last_hidden_state[:, :-1][wanted]
    targets = input_ids[:, 1:][wanted]
    log_probs, entropies = _head(model.get_output_embeddings(), hidden, targets, entropy, chunk_logits)
    return Scores(
        log_probs,
        wanted.nonzero()[:, 0],
        entropies if entropy else None,
        _balance(model, output.router_logits, attention_mask) if balance else None,
    )


def _head(head: Any, hidden: Tensor, targets: Tensor, entropy: bool, chunk_logits: int) -> tuple[Tensor, Tensor]:
    rows = max(1, chunk_logits // head.out_features)
    if len(hidden) <= rows:
        return _score_tokens(head, hidden, targets, entropy)
    parts = [
        checkpoint(_score_tokens, head, h, t, entropy, use_reentrant=False)
        for h, t in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def _score_tokens(head: Any, hidden: Tensor, targets: Tensor, entropy: bool) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float()
    log_probs = -F.cross_entropy(logits, targets, reduction="none")
    if not entropy:
        return log_probs, log_probs.detach()
    with torch.no_grad():
        every = logits.log_softmax(-1)
        return log_probs, -(every.exp() * every).sum(-1)


def _balance(model: Any, router_logits: Any, attention_mask: Tensor) -> Tensor:
    config = model.config.get_text_config()
    experts = getattr(config, "num_experts", None) or config.num_local_experts
    loss: Tensor = load_balancing_loss_func(router_logits, experts, config.num_experts_per_tok, attention_mask)
    return loss
