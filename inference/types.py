"""The nouns of a research agent's run: questions, conversations, steps, episodes.

* `Question` is all an agent ever sees. Gold answers live in `rollout_env.problem`, which this package cannot import.
* A conversation is a tuple of `Node`s, each stored once. A node that a policy sampled keeps the exact token ids and
  log-probabilities the engine returned (the end-of-turn token included); nothing is ever tokenised again.
* A `ViewItem` says in which form a node stands in a prompt, so every prompt of an episode can be replayed exactly.
* An `Episode` is one attempt at a question; it holds one or more `Trajectory` objects, its *tries* (a restart from the
  bare question). A `Step` is one completion and the results of its calls.
* Limits are not errors: every way a run can end is a `StopReason`. Nor does a tool's outage end anything: it is marked
  on the result of the call, and `rollout_env.judge` decides what it means for the episode.

All records are frozen dataclasses; `inference.records` writes and reads them as JSON lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    text: str
    attachments: tuple[str, ...] = ()
    meta: dict[str, str] = field(default_factory=dict)
    """Free facts for reports (hops, split). Never gold."""


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    """Unique within its trajectory; the result node carries it as `call_id`."""
    name: str
    arguments: dict[str, Any]
    repaired: str | None = None
    """What was mended to read the call, or None when it was well formed."""


@dataclass(frozen=True, slots=True)
class Node:
    """One message. Its index in the trajectory's `nodes` is its identity."""

    role: Role
    text: str
    """Full text. Assistant: everything sampled (thought, call markup, answer) without the end-of-turn token."""
    calls: tuple[ToolCall, ...] = ()
    """Assistant only: the calls read from the text or given natively, in order."""
    call_id: str | None = None
    """Tool only: the call this is the one result of."""
    is_error: bool = False
    """Tool only: the result says that the call failed; it is never evidence."""
    unavailable: bool = False
    """Tool only: an error of the tool or its server, not of what the call asked. Nothing the agent did."""
    token_ids: tuple[int, ...] | None = None
    """Assistant only: sampled ids, end-of-turn token included when sampled. None: the endpoint gave no ids."""
    logprobs: tuple[float, ...] | None = None
    """One per token id, nats, under the distribution it was sampled from."""


@dataclass(frozen=True, slots=True)
class ViewItem:
    node: int
    limit: int | None = None
    """None: whole. 0: the fixed placeholder. n > 0: at most n tokens of the node's text."""


class Finish(StrEnum):
    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """The turn was cut at max_tokens. Its calls are never executed."""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of prompt_tokens served from a prefix cache."""
    completion_tokens: int = 0
    estimated: bool = False
    """Some of it was not reported by the endpoint and is estimated from the length of the text."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One LLM completion and the results of its calls."""

    view: tuple[ViewItem, ...]
    """The prompt, in order."""
    completion: int
    """Index of the assistant node."""
    results: tuple[int, ...] = ()
    """Indices of the tool (or feedback) nodes that answer it, in call order."""
    malformed: bool = False
    """The turn held a call that could not be read or executed as written, or was cut."""
    finish: Finish = Finish.STOP
    usage: Usage = Usage()
    policy_version: int = 0
    """Version of the weights that sampled the completion; 0 where the endpoint has none."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One link of the chain a final turn states: the claim, the words it rests on, the page they stand on."""

    claim: str
    quote: str
    source: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    evidence: tuple[Evidence, ...] = ()
    forced: bool = False
    """Given because the last try ran out, not because the agent chose to answer."""


class StopReason(StrEnum):
    """Every way a try or an episode can end. `inference.react` writes down the order in which limits are checked."""

    ANSWERED = "answered"
    """A valid final answer was stated."""
    MAX_TURNS = "max_turns"
    """T_max turns passed without a valid answer."""
    FORMAT = "format"
    """Too many turns in a row were malformed or stated no valid answer."""
    CONTEXT = "context"
    """The next prompt would not fit the context."""
    TOKEN_BUDGET = "token_budget"
    """The episode's budget of sampled tokens is spent."""
    DEADLINE = "deadline"
    """The episode's wall-clock budget is spent."""
    ERRORED = "errored"
    """Infrastructure failed and retries were spent. Never scored as wrong."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One try: a conversation and the steps that made it."""

    nodes: tuple[Node, ...]
    steps: tuple[Step, ...]
    stop: StopReason
    answer: Answer | None = None
    role: str = "main"
    """The agent role whose policy sampled it."""


@dataclass(frozen=True, slots=True)
class EpisodeKey:
    """What an episode is an attempt of. Everything it samples depends on this and the policy alone."""

    question_id: str
    sample: int = 0
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.question_id}/{self.sample}/{self.seed}"


@dataclass(frozen=True, slots=True)
class Episode:
    key: EpisodeKey
    tries: tuple[Trajectory, ...]
    stop: StopReason
    answer: Answer | None = None
    usage: Usage = Usage()
    seconds: float = 0.0
    error: str | None = None
    """With stop=errored: what failed, in one line."""
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        return sum(len(t.steps) for t in self.tries)

    @property
    def outages(self) -> tuple[tuple[int, int], ...]:
        """(try, step) of each step that met an unavailable tool, in order."""
        return tuple((i, j) for i, j, _ in self._unavailable())

    @property
    def failure(self) -> str | None:
        """What of the infrastructure failed first, in one line; None where nothing did."""
        return self.error or next((text for _, _, text in self._unavailable()), None)

    def _unavailable(self) -> Iterator[tuple[int, int, str]]:
        for i, attempt in enumerate(self.tries):
            for j, step in enumerate(attempt.steps):
                texts = [attempt.nodes[n].text for n in step.results if attempt.nodes[n].unavailable]
                if texts:
                    yield i, j, " ".join(texts[0].split())
