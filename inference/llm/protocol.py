"""What the loop asks of a language model.

`LLM.complete` takes a `Prompt` (nodes in their view forms) and returns one `Completion`. Implementations:
`openai_chat` (any OpenAI-compatible chat endpoint), `token_llm` over a `TokenEngine` (vLLM by token ids, or the
in-process engine of `training.engine`), `scripted` (the shipped double), and `data_synthesis.teacher`.

Failures are `LLMError` (after the client's own retries) or `ContextOverflow`. A completion cut at `max_tokens` is not
an error: its `finish` says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from inference.types import Finish, Node, ToolCall, Usage


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 0.95
    max_tokens: int = 16384
    """Sampled tokens a turn."""
    seed: int | None = None
    """Same seed, prompt and weights give the same completion where the engine can promise it."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is shown it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments object."""


@dataclass(frozen=True, slots=True)
class Prompt:
    nodes: tuple[Node, ...]
    limits: tuple[int | None, ...]
    """One per node, with the meaning of `ViewItem.limit`."""
    tools: tuple[ToolSpec, ...] = ()
    """Offered natively by endpoints that take them; text-call agents describe tools in the system node instead."""


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    calls: tuple[ToolCall, ...] = ()
    """Native calls, where the endpoint parses them itself; text calls stay in `text`."""
    finish: Finish = Finish.STOP
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    usage: Usage = Usage()
    policy_version: int = 0


class LLM(Protocol):
    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """One completion. Raises LLMError or ContextOverflow."""
        ...


@dataclass(frozen=True, slots=True)
class TokenCompletion:
    token_ids: tuple[int, ...]
    """Sampled ids, end-of-turn token included when sampled."""
    logprobs: tuple[float, ...]
    finish: Finish
    cached_tokens: int = 0
    policy_version: int = 0


class TokenEngine(Protocol):
    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> TokenCompletion:
        """Token ids in, token ids out. Raises LLMError or ContextOverflow."""
        ...


@runtime_checkable
class PromptCounter(Protocol):
    """An LLM that knows the size of a prompt before it is sent; with one, the loop checks the context itself."""

    def count(self, prompt: Prompt) -> int:
        """Tokens of the prompt."""
        ...
