"""The scheduler of rollouts: a pure state machine. Events in, decisions out; no clock, no I/O, no tasks.

* A group is the samples of one question. Each rollout of each submitted group is started, and settled exactly once: as
  finished, or as given up after `retries` further starts. Nothing is dropped for its age.
* Workers pull as they go idle: a worker that is `Idle` is handed a rollout as soon as one is admitted.
* The oldest group goes first, and in it the lowest sample; a rollout whose infrastructure failed re-enters at its own
  age, so it is refilled alone and never waits behind younger groups.
* Settled rollouts go to the buffer. When the buffer holds `groups_per_update` whole groups, `Update` hands it over, and
  no rollout starts until `Updated` comes back: each update sees rollouts of one policy, each rollout is in one update.
  After `Close` a last, partial buffer is handed over. With `groups_per_update=None` the one buffer holds all groups.
* After `halt_after` rollouts in a row were given up, with none finished between them, `Halt` is decided and nothing
  starts any more: what is broken is not the rollouts.

The driver (`rollout_env.runner`) reports what happened and does what is decided, in the order decided.
"""

import heapq
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Rollout:
    group: int
    """Number of the group, in order of submission: its age."""
    sample: int


@dataclass(frozen=True, slots=True)
class Submit:
    """A group of `samples` rollouts enters; those in `done` were finished before and go to the buffer at once."""

    samples: int
    done: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Close:
    """No group will follow."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A worker has nothing to do."""

    worker: int


@dataclass(frozen=True, slots=True)
class Finished:
    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Failed:
    """Infrastructure failed under the rollout."""

    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Updated:
    """The buffer handed over by `Update` has been used."""


Event = Submit | Close | Idle | Finished | Failed | Updated


@dataclass(frozen=True, slots=True)
class Start:
    worker: int
    rollout: Rollout
    attempt: int
    """0 the first time, then the number of failures before."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Its retries are spent: the rollout is settled as errored."""

    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Update:
    """The buffer is full: whole groups, oldest first."""

    finished: tuple[Rollout, ...]
    given_up: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True)
class Halt:
    """`halt_after` rollouts in a row were given up."""


Decision = Start | GiveUp | Update | Halt


class Scheduler:
    def __init__(self, *, retries: int, groups_per_update: int | None = None, halt_after: int | None = None) -> None:
        self._retries = retries
        self._groups_per_update = groups_per_update
        self._halt_after = halt_after
        self._submitted = 0
        self._closed = False
        self._waiting: deque[tuple[list[Rollout], list[Rollout]]] = deque()
        """Groups not yet admitted, oldest first, each as (to be done, done before)."""
        self._admitted = 0
        """Groups of the coming update."""
        self._ready: list[Rollout] = []
        """Heap of admitted rollouts that no worker has."""
        self._running: set[Rollout] = set()
        self._idle: deque[int] = deque()
        self._failures: dict[Rollout, int] = {}
        self._finished: list[Rollout] = []
        self._given_up: list[Rollout] = []
        self._given_up_in_a_row = 0
        self._updating = False
        self._halted = False

    def handle(self, event: Event) -> list[Decision]:
        """Take note of what happened; what to do now, in order. ValueError on an event that cannot have happened."""
        decisions: list[Decision] = []
        match event:
            case Submit():
                self._submit(event)
            case Close():
                self._closed = True
            case Idle(worker):
                self._idle.append(worker)
            case Finished(rollout):
                self._leave(rollout)
                self._finished.append(rollout)
                self._given_up_in_a_row = 0
            case Failed(rollout):
                decisions += self._fail(rollout)
            case Updated():
                self._take_buffer_back()
        return decisions if self._halted else decisions + self._advance()

    def _submit(self, event: Submit) -> None:
        if self._closed:
            raise ValueError("a group was submitted after Close")
        group = self._submitted
        self._submitted += 1
        rollouts = [Rollout(group, sample) for sample in range(event.samples)]
        to_do = [rollout for rollout in rollouts if rollout.sample not in event.done]
        self._waiting.append((to_do, [rollout for rollout in rollouts if rollout.sample in event.done]))

    def _leave(self, rollout: Rollout) -> None:
        if rollout not in self._running:
            raise ValueError(f"{rollout} was not running")
        self._running.remove(rollout)

    def _fail(self, rollout: Rollout) -> list[Decision]:
        self._leave(rollout)
        self._failures[rollout] = self._failures.get(rollout, 0) + 1
        if self._failures[rollout] <= self._retries:
            heapq.heappush(self._ready, rollout)
            return []
        self._given_up.append(rollout)
        self._given_up_in_a_row += 1
        self._halted = self._halt_after is not None and self._given_up_in_a_row >= self._halt_after
        return [GiveUp(rollout), Halt()] if self._halted else [GiveUp(rollout)]

    def _take_buffer_back(self) -> None:
        if not self._updating:
            raise ValueError("no update was under way")
        self._updating = False
        self._admitted = 0
        self._finished = []
        self._given_up = []

    def _advance(self) -> list[Decision]:
        if self._updating:
            return []
        while self._waiting and not self._buffer_spoken_for():
            to_do, done_before = self._waiting.popleft()
            for rollout in to_do:
                heapq.heappush(self._ready, rollout)
            self._finished += done_before
            self._admitted += 1
        decisions: list[Decision] = []
        while self._idle and self._ready:
            rollout = heapq.heappop(self._ready)
            self._running.add(rollout)
            decisions.append(Start(self._idle.popleft(), rollout, self._failures.get(rollout, 0)))
        if self._buffer_full():
            self._updating = True
            decisions.append(Update(tuple(sorted(self._finished)), tuple(sorted(self._given_up))))
        return decisions

    def _buffer_spoken_for(self) -> bool:
        return self._groups_per_update is not None and self._admitted >= self._groups_per_update

    def _buffer_full(self) -> bool:
        settled = self._admitted > 0 and not self._ready and not self._running
        return settled and (self._buffer_spoken_for() or (self._closed and not self._waiting))
