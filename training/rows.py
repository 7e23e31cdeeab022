"""Rows: what a trajectory becomes before it is batched, one token sequence with a mark on each trained token.

* Only tokens the model wrote are trained: its sampled ids, the end-of-turn token included, and nothing of the template
  around them (the newline after a turn is the template's). An observation, a question or a prompt never is.
* Each trained action stands in exactly the context it was sampled in: the ids before it in its row are
  `renderer.prompt_ids` of that step's view, token for token, and its own ids are the recorded ones. Only a turn that
  carries no ids (a teacher's, an API's) is encoded here, as the same renderer encodes it in a context.
* Consecutive steps share a row while each prompt begins with all of the row before it; a step whose view rewrote
  something older (a blanked observation) opens a new row. Each step's completion is trained exactly once.
* A row ends with its last trained token. `admit` refuses rows that train nothing or are longer than the limit, so no
  action is ever cut; each refusal carries the row's id and the reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from configs.errors import InputError
from inference.types import Episode, Finish, Node, Step


class RowError(InputError):
    """A trajectory that cannot be trained as it was recorded."""


class Renderer(Protocol):
    """What is needed of `inference.llm.render.ChatMLRenderer`."""

    turn_end_id: int

    def prompt_ids(self, nodes: Sequence[Node], limits: Sequence[int | None]) -> list[int]:
        """The whole prompt, up to and including the opening of the assistant's turn."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of the text of a turn that carries none."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    id: str
    input_ids: npt.NDArray[np.int32]
    """[tokens]"""
    trained: npt.NDArray[np.bool_]
    """[tokens]; the token is a target. Token 0 never is: it has no context."""
    logprobs: npt.NDArray[np.float32]
    """[tokens], nats, as the engine sampled them; 0 where none was recorded."""
    weight: float = 1.0
    """Factor on the loss of each of its trained tokens."""
    group: str = ""
    """What the row is a part of: the rollout, or the side of a pair."""

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class Refusal:
    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Target:
    """A mid-training record: one turn to be written in one context."""

    id: str
    prompt: tuple[Node, ...]
    target: str
    limits: tuple[int | None, ...] | None = None
    """View form of each prompt node; None: all whole."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference record: two episodes of one question, the first one better."""

    id: str
    question_id: str
    chosen: Episode
    rejected: Episode


class _Draft:
    """A row in the making."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.trained: list[bool] = []
        self.logprobs: list[float] = []

    def continues_in(self, prompt: Sequence[int]) -> bool:
        return bool(self.ids) and len(prompt) >= len(self.ids) and list(prompt[: len(self.ids)]) == self.ids

    def add(self, ids: Sequence[int], *, trained: bool, logprobs: Sequence[float] | None = None) -> None:
        self.ids.extend(ids)
        self.trained.extend([trained] * len(ids))
        self.logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)

    def row(self, name: str, weight: float, group: str) -> Row:
        return Row(
            name,
            np.array(self.ids, np.int32),
            np.array(self.trained, np.bool_),
            np.array(self.logprobs, np.float32),
            weight,
            group,
        )


def rows_from_trajectory(
    nodes: Sequence[Node],
    steps: Sequence[Step],
    renderer: Renderer,
    name: str,
    *,
    group: str | None = None,
    need_logprobs: bool = False,
    weight: float = 1.0,
) -> list[Row]:
    """The rows of one try, in the order they were sampled; `name` begins their ids and is their group by default.

    Raises RowError where a step's record contradicts itself, a completion serves two steps, or (with `need_logprobs`)
    log-probabilities are missing.
    """
    if len({step.completion for step in steps}) != len(steps):
        raise RowError(f"{name}: one completion stands for two steps")
    drafts: list[_Draft] = []
    for number, step in enumerate(steps):
        prompt = renderer.prompt_ids([nodes[v.node] for v in step.view], [v.limit for v in step.view])
        ids, logprobs = _completion(nodes[step.completion], step.finish, renderer, f"{name}: step {number}")
        if need_logprobs and logprobs is None:
            raise RowError(f"{name}: step {number}: no recorded log-probabilities")
        if not drafts or not drafts[-1].continues_in(prompt):
            drafts.append(_Draft())
        draft = drafts[-1]
        draft.add(prompt[len(draft.ids) :], trained=False)
        draft.add(ids, trained=True, logprobs=logprobs)
    return [draft.row(f"{name}/row{i}", weight, group or name) for i, draft in enumerate(drafts)]


def rows_from_episode(
    episode: Episode, renderer: Renderer, *, name: str = "", need_logprobs: bool = False, weight: float = 1.0
) -> list[Row]:
    """The rows of every try; all carry the episode's name (its key by default) as their group."""
    name = name or str(episode.key)
    rows: list[Row] = []
    for i, attempt in enumerate(episode.tries):
        rows += rows_from_trajectory(
            attempt.nodes,
            attempt.steps,
            renderer,
            f"{name}/try{i}",
            group=name,
            need_logprobs=need_logprobs,
            weight=weight,
        )
    return rows


def target_row(target: Target, renderer: Renderer) -> Row:
    """The one row of a mid-training record: its prompt, and the target turn trained up to its end-of-turn token."""
    limits = target.limits if target.limits is not None else (None,) * len(target.prompt)
    if len(limits) != len(target.prompt):
        raise RowError(f"{target.id}: {len(limits)} limits for {len(target.prompt)} prompt nodes")
    draft = _Draft()
    draft.add(renderer.prompt_ids(target.prompt, limits), trained=False)
    draft.add([*renderer.encode(target.target), renderer.turn_end_id], trained=True)
    return draft.row(target.id, target.weight, target.id)


def admit(rows: Iterable[Row], max_tokens: int | None) -> tuple[list[Row], list[Refusal]]:
    """The rows that can be trained whole, and what is refused of the others."""
    kept: list[Row] = []
    refused: list[Refusal] = []
    for row in rows:
        if reason := _objection(row, max_tokens):
            refused.append(Refusal(row.id, reason))
        else:
            kept.append(row)
    return kept, refused


def _objection(row: Row, max_tokens: int | None) -> str | None:
    if not row.trained.any():
        return "no trained token"
    if row.trained[0]:
        return "the first token is trained, which has no context"
    if max_tokens is not None and len(row) > max_tokens:
        return f"{len(row)} tokens, more than the limit of {max_tokens}"
    return None


def _completion(
    node: Node, finish: Finish, renderer: Renderer, where: str
) -> tuple[Sequence[int], Sequence[float] | None]:
    if node.token_ids is None:
        ended = [renderer.turn_end_id] if finish is Finish.STOP else []
        return [*renderer.encode(node.text), *ended], None
    if node.logprobs is not None and len(node.logprobs) != len(node.token_ids):
        raise RowError(f"{where}: {len(node.logprobs)} log-probabilities for {len(node.token_ids)} tokens")
    return node.token_ids, node.logprobs
