"""Attention over slots: many requests in one forward pass, each with its keys and values in its own slot.

* A step's tokens are packed into one row of N tokens, without padding. `StepPlan` says which slot and position each
  has and how they attend; `SlotCache` writes their keys and values there; `slot_attention` reads them.
* Requests with one new token (decoding) in neighbouring slots attend in one call, padded to the longest. Requests with
  more (prefill) attend one by one, each under its own causal mask.
* `slot_twin` gives a second model object over the very same parameters, in eval mode and with this attention, so a
  model in training is never switched. Any causal language model of transformers that calls the attention interface
  works; sliding windows, soft caps, sinks and other additions to plain causal attention are refused.

Shapes: N packed tokens, H heads, G key-value heads, D head width, S slots, C context.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from configs.errors import InputError

_ATTENTION = "proofhound_slots"
# One more call costs about as much as this many padded key positions.
_PADDING_ALLOWED = 512


@dataclass(frozen=True, slots=True)
class Segment:
    """The new tokens of one request in a step: positions `start` to `start + size` of its slot."""

    slot: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Run:
    """Requests in neighbouring slots with one new token each."""

    row: int
    """First of its rows in the packed step."""
    slot: int
    """First of its slots."""
    count: int
    width: int
    """Key positions looked at: the longest request's."""
    mask: Tensor | None
    """bool [count, 1, 1, width], True where a request may look; None where all are equally long."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One request with several new tokens."""

    row: int
    segment: Segment
    mask: Tensor | None
    """float [size, start + size], 0 or -inf; None where the chunk starts its slot: plainly causal."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    segments: tuple[Segment, ...]
    """In packed order."""
    slots: Tensor
    """int64 [N]: each token's slot."""
    positions: Tensor
    """int64 [N]: each token's position in its slot."""
    last_rows: Tensor
    """int64 [len(segments)]: the packed row of each segment's last token."""
    runs: tuple[Run, ...]
    chunks: tuple[Chunk, ...]


def plan_step(segments: Sequence[Segment], dtype: torch.dtype, device: torch.device) -> StepPlan:
    """Order the segments (single tokens first, by slot) and say how each attends."""
    single = sorted((s for s in segments if s.size == 1), key=lambda s: s.slot)
    several = [s for s in segments if s.size > 1]
    ordered = (*single, *several)
    sizes = torch.tensor([s.size for s in ordered])
    ends = sizes.cumsum(0)
    slots = torch.tensor([s.slot for s in ordered]).repeat_interleave(sizes)
    starts = torch.tensor([s.start for s in ordered]) - (ends - sizes)
    positions = torch.arange(int(ends[-1])) + starts.repeat_interleave(sizes)
    rows = (ends - sizes).tolist()[len(single) :]
    chunks = tuple(
        Chunk(row, s, _causal_mask(s, dtype, device) if s.start else None) for row, s in zip(rows, several, strict=True)
    )
    runs = tuple(_runs(single, device))
    return StepPlan(ordered, slots.to(device), positions.to(device), (ends - 1).to(device), runs, chunks)


def _causal_mask(segment: Segment, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = (segment.size, segment.start + segment.size)
    return torch.full(shape, float("-inf"), dtype=dtype, device=device).triu_(segment.start + 1)


def _runs(single: Sequence[Segment], device: torch.device) -> list[Run]:
    """Cut the decoding requests where the slots do not adjoin or where padding would cost more than a call."""
    runs: list[Run] = []
    first, widest, padding = 0, 0, 0
    for index, segment in enumerate(single):
        width = segment.start + 1
        wider = max(widest, width)
        padded = padding + (wider - widest) * (index - first) + wider - width
        adjoins = index > first and single[index - 1].slot + 1 == segment.slot
        if index > first and not (adjoins and padded - padding <= _PADDING_ALLOWED):
            runs.append(_run(first, single[first:index], device))
            first, wider, padded = index, width, 0
        widest, padding = wider, padded
    if single:
        runs.append(_run(first, single[first:], device))
    return runs


def _run(row: int, members: Sequence[Segment], device: torch.device) -> Run:
    widths = [m.start + 1 for m in members]
    width = max(widths)
    mask = None
    if min(widths) != width:
        mask = (torch.arange(width) < torch.tensor(widths)[:, None])[:, None, None].to(device)
    return Run(row, members[0].slot, len(members), width, mask)


class SlotCache(Cache):
    """Keys and values of every slot: per layer two tensors [S, G, C, D]. `plan` must be set before each forward."""

    def __init__(self, config: Any, slots: int, context: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers=[])
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, slots, heads, context, width)
        self.keys = list(torch.zeros(shape, dtype=dtype, device=device))
        self.values = list(torch.zeros(shape, dtype=dtype, device=device))
        self.plan: StepPlan | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the step's keys and values [1, G, N, D] to their slots; gives the layer's whole tensors."""
        assert self.plan is not None
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys[self.plan.slots, :, self.plan.positions] = key_states[0].transpose(0, 1)
        values[self.plan.slots, :, self.plan.positions] = value_states[0].transpose(0, 1)
        return keys, values

    def copy_prefix(self, source: int, target: int, size: int) -> None:
        for states in (*self.keys, *self.values):
            states[target, :, :size] = states[source, :, :size]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nothing is shared between requests: positions are always given."""
        return 0


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    slot_plan: StepPlan,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of query [1, H, N, D] over a layer's slots [S, G, C, D]; gives [1, N, H, D]."""
    if any(kwargs.get(extra) is not None for extra in ("sliding_window", "softcap", "s_aux", "position_bias")):
        raise InputError("this model adds to plain causal attention; the in-process engine cannot serve it")
    heads, tokens, width = query.shape[1:]
    groups = key.shape[1]
    out = query.new_empty(tokens, heads, value.shape[-1])
    for run in slot_plan.runs:
        rows, slots = slice(run.row, run.row + run.count), slice(run.slot, run.slot + run.count)
        # The heads that share keys stand as the queries of one head, so no key is repeated.
        grouped = query[0, :, rows].transpose(0, 1).reshape(run.count, groups, heads // groups, width)
        seen = scaled_dot_product_attention(
            grouped, key[slots, :, : run.width], value[slots, :, : run.width], attn_mask=run.mask, scale=scaling
        )
        out[rows] = seen.reshape(run.count, heads, -1)
    for chunk in slot_plan.chunks:
        slot, end = chunk.segment.slot, chunk.segment.start + chunk.segment.size
        rows = slice(chunk.row, chunk.row + chunk.segment.size)
        seen = scaled_dot_product_attention(
            query[:, :, rows],
            key[slot : slot + 1, :, :end],
            value[slot : slot + 1, :, :end],
            attn_mask=chunk.mask,
            is_causal=chunk.mask is None,
            scale=scaling,
            enable_gqa=groups != heads,
        )
        out[rows] = seen[0].transpose(0, 1)
    return out[None], None


def slot_twin(model: PreTrainedModel) -> PreTrainedModel:
    """A model object with the same parameter objects as `model`, in eval mode, that attends over slots.

    Updates in place, and `param.data = ...`, are seen at once; replaced parameter objects are not.
    """
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    ALL_ATTENTION_FUNCTIONS.register(_ATTENTION, slot_attention)
    twin.set_attn_implementation(_ATTENTION)
    return twin.eval()
