"""The inner loop: think, act, observe, until the try ends. The one step loop of the project.

A step samples one completion and answers each of its calls:

* A turn cut at max_tokens runs nothing and answers nothing. Else its calls run, all at once, each with exactly one
  result, in the order of the turn; a call that cannot be run is answered by its problem. A turn without calls is read
  as a final turn. What was wrong is always told: by the result of a call, or by a feedback node after the results.
* A turn that neither ran a call nor stated a valid answer is a format error; `max_format_errors` of them in a row end
  the try. `Step.malformed` is stricter: it also marks turns in which a call was repaired or failed beside good ones.

A valid answer ends the try at once, on the last allowed turn too. Otherwise limits are checked before each step, in
this order: deadline, tokens of the episode, turns of the try, format errors in a row, and last the context, which only
the next prompt can tell.

A failing call is the model's business (a plain result with `is_error`); a tool that fails is told to it too, and
marked `unavailable`, for it was nothing the model did. A failing LLM is not told: `LLMError` passes on.
With a journal, steps on record are replayed: no LLM call and no tool call is made for them.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from configs.errors import ContextOverflow, LLMError, ToolUnavailable, boundary
from inference.answer import read_answer
from inference.journal import EpisodeLog, Results, Sampled, TryEnd
from inference.llm.protocol import LLM, Completion, Prompt, PromptCounter, Sampling, ToolSpec
from inference.records import without_surrogates
from inference.toolcall import Request, read_calls
from inference.tools.protocol import Tool, ToolResult
from inference.types import (
    Answer,
    EpisodeKey,
    Finish,
    Node,
    Role,
    Step,
    StopReason,
    Trajectory,
    Usage,
)
from inference.view import WindowView

CUT = "The turn was cut at its token limit, so nothing in it was done. Think less and act: one call, or the answer."


@dataclass(frozen=True, slots=True)
class Limits:
    """Every limit a try can meet. None: no such limit."""

    max_turns: int
    max_format_errors: int
    context_tokens: int
    episode_tokens: int | None = None
    deadline_seconds: float | None = None
    tool_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What every episode of an agent shares."""

    llm: LLM
    tools: Mapping[str, Tool]
    limits: Limits
    view: WindowView = WindowView()
    sampling: Sampling = Sampling()
    native: bool = False
    """Tools are offered to the endpoint, which parses the calls itself."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a completion asks for."""

    requests: tuple[Request, ...] = ()
    answer: Answer | None = None
    feedback: str | None = None
    malformed: bool = False

    @property
    def progress(self) -> bool:
        """A call runs, or a valid answer is stated."""
        return self.answer is not None or any(request.problem is None for request in self.requests)


@dataclass(slots=True)
class Conversation:
    """A try in the making."""

    attempt: int
    nodes: list[Node]
    steps: list[Step] = field(default_factory=list)
    format_errors: int = 0
    """In a row, up to now."""
    answer: Answer | None = None

    def trajectory(self, stop: StopReason) -> Trajectory:
        return Trajectory(tuple(self.nodes), tuple(self.steps), stop, self.answer)

    def add(self, sampled: Sampled, decision: Decision, results: Sequence[Node]) -> None:
        """One step: the assistant's node and the nodes that answer it."""
        completion, first = sampled.completion, len(self.nodes)
        self.nodes.append(
            Node(
                Role.ASSISTANT,
                completion.text,
                calls=tuple(request.call for request in decision.requests),
                token_ids=completion.token_ids,
                logprobs=completion.logprobs,
            )
        )
        self.nodes.extend(results)
        self.steps.append(
            Step(
                view=sampled.view,
                completion=first,
                results=tuple(range(first + 1, len(self.nodes))),
                malformed=decision.malformed,
                finish=completion.finish,
                usage=completion.usage,
                policy_version=completion.policy_version,
            )
        )
        self.format_errors = 0 if decision.progress else self.format_errors + 1


def decide(completion: Completion, specs: Sequence[ToolSpec], step: int) -> Decision:
    """What a completion asks for. Pure."""
    if completion.finish is Finish.LENGTH:
        return Decision(feedback=CUT, malformed=True)
    read = read_calls(completion.text, completion.calls, specs, step)
    if read.requests or read.unreadable:
        faulty = any(request.problem or request.call.repaired for request in read.requests)
        return Decision(read.requests, None, "\n".join(read.unreadable) or None, bool(faulty or read.unreadable))
    answer = read_answer(completion.text)
    return Decision(feedback=answer) if isinstance(answer, str) else Decision(answer=answer)


def limit_reached(limits: Limits, *, seconds: float, tokens: int, turns: int, format_errors: int) -> StopReason | None:
    """The first limit met, in the order of the module's contract. Pure."""
    if limits.deadline_seconds is not None and seconds >= limits.deadline_seconds:
        return StopReason.DEADLINE
    if limits.episode_tokens is not None and tokens >= limits.episode_tokens:
        return StopReason.TOKEN_BUDGET
    if turns >= limits.max_turns:
        return StopReason.MAX_TURNS
    if format_errors >= limits.max_format_errors:
        return StopReason.FORMAT
    return None


def step_seed(key: EpisodeKey, attempt: int, step: int) -> int:
    """Seed of one step, 31 bits: a function of (question, sample, seed, try, step) alone."""
    digest = hashlib.sha256(f"{key}/{attempt}/{step}".encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class ReAct:
    """The step loop of one episode."""

    def __init__(self, setup: Setup, key: EpisodeKey, log: EpisodeLog) -> None:
        self._setup = setup
        self._key = key
        self._log = log
        self._started = setup.clock() - log.seconds
        self._specs = tuple(tool.spec for tool in setup.tools.values())
        self.usage = Usage()
        """Of the episode so far."""

    @property
    def seconds(self) -> float:
        """Spent on the episode so far, earlier runs included."""
        return self._setup.clock() - self._started

    async def run(self, talk: Conversation) -> StopReason:
        """Step until the try ends; `talk.answer` is set when it ends `answered`. Raises LLMError, StorageError."""
        stop = self._ended(talk)
        while stop is None:
            try:
                talk.answer = await self._step(talk)
            except ContextOverflow:
                stop = StopReason.CONTEXT
            else:
                stop = self._ended(talk) if talk.answer is None else StopReason.ANSWERED
        if self._log.end(talk.attempt, len(talk.steps)) is None:
            self._log.commit(TryEnd(talk.attempt, len(talk.steps), stop))
        return stop

    async def force(self, talk: Conversation, final_prompt: str) -> Answer | None:
        """One more turn that is asked for the answer and offered no tool; None when it states no valid one.

        Where the prompt does not fit, it is asked once more with every observation blanked.
        """
        talk.nodes.append(Node(Role.USER, final_prompt))
        for view in (self._setup.view, WindowView(window=0)):
            try:
                sampled = await self._sample(talk, view, offered=())
            except ContextOverflow:
                continue
            answer = read_answer(sampled.completion.text)
            talk.add(sampled, Decision(malformed=sampled.completion.finish is Finish.LENGTH), ())
            return None if isinstance(answer, str) else replace(answer, forced=True)
        talk.nodes.pop()
        return None

    def _ended(self, talk: Conversation) -> StopReason | None:
        """On record, or by a limit; a step on record was within the limits when it was taken."""
        turns = len(talk.steps)
        on_record = self._log.end(talk.attempt, turns)
        if on_record is not None or self._log.replaying(talk.attempt, turns):
            return on_record
        return limit_reached(
            self._setup.limits,
            seconds=self.seconds,
            tokens=self.usage.completion_tokens,
            turns=turns,
            format_errors=talk.format_errors,
        )

    async def _step(self, talk: Conversation) -> Answer | None:
        sampled = await self._sample(talk, self._setup.view, self._specs if self._setup.native else ())
        decision = decide(sampled.completion, self._specs, len(talk.steps))
        talk.add(sampled, decision, await self._results(talk, decision))
        return decision.answer

    async def _sample(self, talk: Conversation, view: WindowView, offered: tuple[ToolSpec, ...]) -> Sampled:
        """The next completion: from the record, or sampled and committed. Raises LLMError, ContextOverflow."""
        step = len(talk.steps)
        sampled = self._log.sampled(talk.attempt, step)
        if sampled is None:
            items = view(talk.nodes)
            prompt = Prompt(tuple(talk.nodes), tuple(item.limit for item in items), offered)
            sampling = replace(self._setup.sampling, seed=step_seed(self._key, talk.attempt, step))
            completion = await self._complete(prompt, sampling)
            sampled = Sampled(talk.attempt, step, items, completion, self.seconds)
            self._log.commit(sampled)
        self.usage += sampled.completion.usage
        return sampled

    async def _complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        llm, room = self._setup.llm, self._setup.limits.context_tokens - sampling.max_tokens
        with boundary(LLMError, "language model"):
            if isinstance(llm, PromptCounter) and (size := llm.count(prompt)) > room:
                raise ContextOverflow(f"the next prompt has {size} tokens, there is room for {room}")
            return await llm.complete(prompt, sampling)

    async def _results(self, talk: Conversation, decision: Decision) -> tuple[Node, ...]:
        """The nodes that answer a completion: from the record, or by running its calls; committed together."""
        step = len(talk.steps)
        on_record = self._log.results(talk.attempt, step)
        if on_record is not None:
            return on_record
        outcomes = await asyncio.gather(*map(self._call, decision.requests), return_exceptions=True)
        for outcome in outcomes:  # only now: no call of the turn is left running behind
            if isinstance(outcome, BaseException):
                raise outcome
        nodes = [node for node in outcomes if isinstance(node, Node)]
        if decision.feedback is not None:
            nodes.append(Node(Role.USER, decision.feedback))
        if nodes:
            self._log.commit(Results(talk.attempt, step, tuple(nodes), self.seconds))
        return tuple(nodes)

    async def _call(self, request: Request) -> Node:
        if request.problem is not None:
            return Node(Role.TOOL, request.problem, call_id=request.call.id, is_error=True)
        name, limit, unavailable = request.call.name, self._setup.limits.tool_seconds, False
        try:
            with boundary(ToolUnavailable, name):
                result = await _within(limit, self._setup.tools[name].call(request.call.arguments))
        except ContextOverflow as error:
            result = ToolResult(f"The call failed ({error}).", is_error=True)
        except (ToolUnavailable, LLMError) as error:
            result, unavailable = ToolResult(f"The tool is unavailable now ({error}).", is_error=True), True
        text = without_surrogates(result.text)
        return Node(Role.TOOL, text, call_id=request.call.id, is_error=result.is_error, unavailable=unavailable)


async def _within(seconds: float, call: Awaitable[ToolResult]) -> ToolResult:
    try:
        return await asyncio.wait_for(call, seconds)
    except TimeoutError as error:
        raise ToolUnavailable(f"no result within {seconds:g} s") from error
