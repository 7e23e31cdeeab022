"""The in-process engine: samples from a causal language model on this machine, for many conversations at once.

* `SlotEngine` is a `TokenEngine`. Each request computes in a slot of its own (`training.slots` chooses it, reusing the
  longest prefix already computed); every step is one forward pass over all requests that are due, those that decode
  and, up to a token cap, those that read their prompts (`training.attention`); tokens are drawn by `training.sampler`.
* What a request samples depends on its prompt, its sampling and the weights, not on the requests beside it.
* The engine computes on the caller's own parameters, in one worker thread; the event loop is never blocked by it.
  Nobody may change the parameters while it computes: change them within `pause()`, then call `set_weights`, after
  which no key or value of the old weights is used. A request in flight goes on: what it has read and sampled is
  computed again under the new weights, and its completion carries the version it began with.
* A turn ends with `turn_end_id` (STOP), or at `max_tokens` or a full context (LENGTH). A prompt that leaves no room for
  one token is a ContextOverflow. Cancelling the awaiting task frees the slot before the next step.
* An exception in the worker fails all requests with an LLMError, and every later one with the same.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from configs.errors import ContextOverflow, InputError, LLMError, ProofhoundError, boundary
from inference.llm.protocol import Sampling, TokenCompletion
from inference.types import Finish
from training.attention import Segment, SlotCache, StepPlan, plan_step, slot_twin
from training.model import load_model
from training.sampler import Draws, sample
from training.slots import SlotTable


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine was made; seconds are wall-clock seconds of the worker thread."""

    steps: int = 0
    prompt_tokens: int = 0
    """Prompt tokens computed; reused ones are not among them."""
    cached_tokens: int = 0
    sampled_tokens: int = 0
    forward_seconds: float = 0.0
    sampling_seconds: float = 0.0
    busy_seconds: float = 0.0
    """Whole steps: forward, sampling and everything between them."""


@dataclass(slots=True, eq=False)
class _Request:
    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    future: "asyncio.Future[TokenCompletion]"
    loop: asyncio.AbstractEventLoop
    slot: int = -1
    cached: int = 0
    version: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    abandoned: bool = False

    def settle(self, outcome: TokenCompletion | ProofhoundError) -> None:
        """Hand the outcome to the awaiting task. Called in the event loop's thread."""
        if self.future.done():
            return
        if isinstance(outcome, ProofhoundError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class SlotEngine:
    """Use as an async context manager; requests may come from any event loop while it is open."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        turn_end_id: int,
        slots: int = 64,
        context: int = 2048,
        policy_version: int = 0,
        threads: int | None = 1,
        step_tokens: int = 2048,
    ) -> None:
        """`slots` should exceed the conversations held at once, or their prefixes evict each other.

        `threads` is torch's process-wide number of threads, set when the worker starts; None leaves it alone.
        `step_tokens` caps the prompt tokens one step computes. Memory: slots x context keys and values per layer.
        """
        self._model = slot_twin(model)
        self._vocabulary = model.get_input_embeddings().num_embeddings
        self._turn_end_id = turn_end_id
        self._version = policy_version
        self._threads = threads
        self._step_tokens = step_tokens
        self._table = SlotTable(slots, context)
        self._cache = SlotCache(model.config.get_text_config(), slots, context, model.dtype, model.device)
        self._active: dict[int, _Request] = {}
        self._pending: list[_Request] = []
        self._stats = EngineStats()
        self._state = threading.Condition()
        """Guards everything below; never held while a step computes."""
        self._incoming: list[_Request] = []
        self._pauses = 0
        self._stepping = False
        self._closed: LLMError | None = LLMError("the sampling engine is not running: use it as `async with engine`")
        self._worker: threading.Thread | None = None

    @classmethod
    def from_folder(
        cls,
        path: Path,
        *,
        slots: int = 64,
        context: int = 2048,
        threads: int | None = 1,
        turn_end_id: int | None = None,
    ) -> Self:
        """Serve the model folder `path`; the end-of-turn token is its generation config's unless given."""
        model = load_model(path, for_training=False)
        if turn_end_id is None:
            ends = model.generation_config.eos_token_id if model.generation_config else None
            turn_end_id = ends[0] if isinstance(ends, list) else ends
        if turn_end_id is None:
            raise InputError(f"{path} names no end-of-turn token: generation_config.json has no eos_token_id")
        return cls(model, turn_end_id=turn_end_id, slots=slots, context=context, threads=threads)

    async def __aenter__(self) -> Self:
        with self._state:
            if self._worker is not None:
                raise RuntimeError("a SlotEngine opens once")
            self._closed = None
            self._worker = threading.Thread(target=self._work, name="slot-engine", daemon=True)
        self._worker.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._state:
            self._closed = self._closed or LLMError("the sampling engine is closed")
            self._state.notify_all()
        assert self._worker is not None
        await asyncio.to_thread(self._worker.join)

    @property
    def stats(self) -> EngineStats:
        """A copy of the counters."""
        return replace(self._stats)

    @property
    def free_slots(self) -> int:
        return int((~self._table.busy).sum())

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> TokenCompletion:
        """Sample one turn. Raises ContextOverflow, LLMError, or ValueError on a prompt or sampling without meaning."""
        prompt = tuple(prompt_ids)
        self._check(prompt, sampling)
        seed = random.getrandbits(64) if sampling.seed is None else sampling.seed
        loop = asyncio.get_running_loop()
        request = _Request(prompt, sampling, seed, loop.create_future(), loop)
        with self._state:
            if self._closed:
                raise LLMError(str(self._closed))
            self._incoming.append(request)
            self._state.notify_all()
        try:
            return await request.future
        finally:
            request.abandoned = True

    def _check(self, prompt: tuple[int, ...], sampling: Sampling) -> None:
        if not prompt or min(prompt) < 0 or max(prompt) >= self._vocabulary:
            raise ValueError(f"a prompt holds one or more ids below {self._vocabulary}")
        if sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.max_tokens < 1:
            raise ValueError(f"temperature >= 0, 0 < top_p <= 1 and max_tokens >= 1 are wanted, not {sampling}")
        if len(prompt) >= self._table.context:
            raise ContextOverflow(f"a prompt of {len(prompt)} tokens leaves no room in {self._table.context}")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Within the block no step computes; entering waits for the one under way. Nests; blocks the calling thread."""
        with self._state:
            self._pauses += 1
            self._state.wait_for(lambda: not self._stepping)
        try:
            yield
        finally:
            with self._state:
                self._pauses -= 1
                self._state.notify_all()

    def set_weights(self, version: int) -> None:
        """The parameters have changed (within `pause`): nothing computed before is used again."""
        with self.pause():
            self._version = version
            self._table.invalidate()

    def invalidate(self) -> None:
        """Forget every computed prefix."""
        with self.pause():
            self._table.invalidate()

    # ---- the worker thread ----

    def _work(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        error: ProofhoundError | None = None
        try:
            with boundary(LLMError, "the sampling engine failed"), torch.inference_mode():
                while self._next_step():
                    pass
        except ProofhoundError as failure:
            error = failure
        self._end(error)

    def _next_step(self) -> bool:
        with self._state:
            self._state.wait_for(lambda: self._closed or (not self._pauses and self._has_work()))
            if self._closed:
                return False
            self._pending += self._incoming
            self._incoming = []
            self._stepping = True
        started = time.perf_counter()
        try:
            self._step()
        finally:
            with self._state:
                self._stepping = False
                self._state.notify_all()
        self._stats.busy_seconds += time.perf_counter() - started
        return True

    def _has_work(self) -> bool:
        return bool(self._incoming or self._pending or self._active)

    def _step(self) -> None:
        self._drop_abandoned()
        self._admit()
        segments = self._due()
        if not segments:
            return
        plan = plan_step(segments, self._model.dtype, self._model.device)
        started = time.perf_counter()
        logits = self._forward(plan)
        computed = time.perf_counter()
        finished = self._advance(plan, logits)
        self._stats.steps += 1
        self._stats.forward_seconds += computed - started
        self._stats.sampling_seconds += time.perf_counter() - computed
        _deliver(finished)

    def _drop_abandoned(self) -> None:
        self._pending = [r for r in self._pending if not r.abandoned]
        for request in [r for r in self._active.values() if r.abandoned]:
            self._release(request)

    def _admit(self) -> None:
        waiting: list[_Request] = []
        for request in self._pending:
            place = self._table.take(np.array(request.prompt, dtype=np.int64))
            if place is None:
                waiting.append(request)
                continue
            if place.source != place.slot:
                self._cache.copy_prefix(place.source, place.slot, place.reused)
            request.slot, request.cached, request.version = place.slot, place.reused, self._version
            self._active[place.slot] = request
            self._stats.cached_tokens += place.reused
        self._pending = waiting

    def _due(self) -> list[Segment]:
        """What each active request computes next; prompts share `step_tokens`, the earliest admitted first."""
        segments, room = [], self._step_tokens
        for slot in self._active:
            start = int(self._table.filled[slot])
            missing = int(self._table.length[slot]) - start
            size = missing if missing == 1 else min(missing, room)
            if not size:
                continue
            if missing > 1:
                room -= size
            segments.append(Segment(slot, start, size))
        return segments

    def _forward(self, plan: StepPlan) -> Tensor:
        """Logits [number of segments, V] after each segment's last token."""
        ids = torch.from_numpy(self._table.ids)[plan.slots.cpu(), plan.positions.cpu()]
        self._cache.plan = plan
        output = self._model(
            input_ids=ids[None].to(self._model.device),
            position_ids=plan.positions[None],
            cache=self._cache,
            use_cache=True,
            logits_to_keep=plan.last_rows,
            slot_plan=plan,
        )
        logits: Tensor = output.logits[0]
        return logits

    def _advance(self, plan: StepPlan, logits: Tensor) -> list[tuple[_Request, TokenCompletion]]:
        """Note what was computed, draw a token for each request whose ids are all read, and release the finished."""
        rows, requests = [], []
        for row, segment in enumerate(plan.segments):
            self._table.filled[segment.slot] += segment.size
            if self._table.filled[segment.slot] == self._table.length[segment.slot]:
                rows.append(row)
                requests.append(self._active[segment.slot])
        drawn = sum(segment.size for segment in plan.segments)
        self._stats.prompt_tokens += drawn - sum(1 for r in requests if r.ids)
        if not rows:
            return []
        ids, logprobs = sample(logits[rows], self._draws(requests))
        self._stats.sampled_tokens += len(ids)
        finished = []
        for request, token, logprob in zip(requests, ids, logprobs, strict=True):
            request.ids.append(token)
            request.logprobs.append(logprob)
            finish = self._finish(request, token)
            if finish is None:
                self._table.append(request.slot, token)
                continue
            self._release(request)
            finished.append((request, _completion(request, finish)))
        return finished

    def _draws(self, requests: Sequence[_Request]) -> Draws:
        return Draws.of(
            temperature=[r.sampling.temperature for r in requests],
            top_p=[r.sampling.top_p for r in requests],
            seeds=[r.seed for r in requests],
            positions=[len(r.prompt) + len(r.ids) for r in requests],
        )

    def _finish(self, request: _Request, token: int) -> Finish | None:
        if token == self._turn_end_id:
            return Finish.STOP
        total = len(request.prompt) + len(request.ids)
        if len(request.ids) >= request.sampling.max_tokens or total >= self._table.context:
            return Finish.LENGTH
        return None

    def _release(self, request: _Request) -> None:
        self._table.release(request.slot)
        del self._active[request.slot]

    def _end(self, error: ProofhoundError | None) -> None:
        """Fail whoever still waits; from here on `generate` raises the same."""
        with self._state:
            if error is not None:
                self._closed = LLMError(str(error))
            reason = self._closed or LLMError("the sampling engine is closed")
            left = [*self._active.values(), *self._pending, *self._incoming]
            self._active, self._pending, self._incoming = {}, [], []
        _deliver([(request, reason) for request in left])


def _completion(request: _Request, finish: Finish) -> TokenCompletion:
    return TokenCompletion(
        token_ids=tuple(request.ids),
        logprobs=tuple(request.logprobs),
        finish=finish,
        cached_tokens=request.cached,
        policy_version=request.version,
    )


def _deliver(outcomes: Sequence[tuple[_Request, TokenCompletion | ProofhoundError]]) -> None:
    for request, outcome in outcomes:
        # A loop that closed meanwhile has nobody left who waits.
        with suppress(RuntimeError):
            request.loop.call_soon_threadsafe(request.settle, outcome)
