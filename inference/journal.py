"""The journal: every LLM step of an unfinished episode, so that a crash loses at most one.

* Append-only JSON lines, one an event, on disk before `append` returns. A torn last line is dropped.
* A completion is committed before any of its tools runs; the results of its calls are committed together after it.
* `EpisodeLog` answers from what is committed: no LLM call and no tool call on record is ever made again, but for what a
  `Rewind` takes back.
* Events of finished episodes are dead weight until `compact` rewrites the file without them, atomically.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from configs.errors import StorageError
from inference.llm.protocol import Completion
from inference.records import append_record, decode, read_envelopes
from inference.types import EpisodeKey, Node, StopReason, ViewItem


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion, as the LLM returned it."""

    attempt: int
    """Index of the try."""
    step: int
    """Index of the step within the try."""
    view: tuple[ViewItem, ...]
    completion: Completion
    seconds: float
    """Spent on the episode so far, earlier runs included."""


@dataclass(frozen=True, slots=True)
class Results:
    """The nodes that answer one completion: tool results in call order, then feedback."""

    attempt: int
    step: int
    nodes: tuple[Node, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class TryEnd:
    """The inner loop of a try ended; what follows it is the forced answer, a new try or nothing."""

    attempt: int
    steps: int
    """How many steps it had taken."""
    stop: StopReason


@dataclass(frozen=True, slots=True)
class Rewind:
    """The results of a step, and all that followed it, count no more: its calls are to be made again."""

    attempt: int
    step: int


Event = Sampled | Results | TryEnd | Rewind
_KINDS: dict[str, type[Event]] = {"sampled": Sampled, "results": Results, "try_end": TryEnd, "rewind": Rewind}
_NAMES = {record: kind for kind, record in _KINDS.items()}


class Journal:
    """One file, one writer; any number of episodes at once."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        """`fsync` makes each event survive a power cut too, at a few milliseconds each. Raises InputError."""
        self._path = path
        self._fsync = fsync
        self._index: dict[str, list[tuple[int, type[Event]]]] = {}
        if path.exists():
            for _, offset, envelope in read_envelopes(path):
                kind = _KINDS.get(envelope["kind"])
                if kind is not None:
                    self._index.setdefault(envelope["key"], []).append((offset, kind))

    def append(self, key: EpisodeKey, event: Event) -> None:
        """Commit one event. Raises StorageError."""
        offset = append_record(self._path, _NAMES[type(event)], str(key), event, fsync=self._fsync)
        self._index.setdefault(str(key), []).append((offset, type(event)))

    def steps(self, key: EpisodeKey) -> tuple[Event, ...]:
        """The committed events of an episode, oldest first."""
        places = self._index.get(str(key), ())
        if not places:
            return ()
        with self._path.open("rb") as file:
            events: list[Event] = []
            for offset, kind in places:
                file.seek(offset)
                events.append(decode(file.readline(), kind, f"{self._path} at byte {offset}"))
        return tuple(events)

    def compact(self, finished: Collection[EpisodeKey]) -> None:
        """Drop the events of finished episodes. The file is the old one or the new one at any moment."""
        dead = {str(key) for key in finished} & self._index.keys()
        if not dead:
            return
        partial = self._path.with_name(f".{self._path.name}.tmp")
        index: dict[str, list[tuple[int, type[Event]]]] = {}
        try:
            with self._path.open("rb") as old, partial.open("wb") as new:
                for key, places in self._index.items():
                    for offset, kind in () if key in dead else places:
                        old.seek(offset)
                        index.setdefault(key, []).append((new.tell(), kind))
                        new.write(old.readline())
                new.flush()
                os.fsync(new.fileno())
            partial.replace(self._path)
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror or error}") from error
        self._index = index


class EpisodeLog:
    """The journal of one episode: what it has committed, by place, and where it commits more."""

    def __init__(self, journal: Journal | None, key: EpisodeKey) -> None:
        self._journal = journal
        self._key = key
        self._sampled: dict[tuple[int, int], Sampled] = {}
        self._results: dict[tuple[int, int], Results] = {}
        self._ends: dict[int, TryEnd] = {}
        for event in journal.steps(key) if journal else ():
            self._keep(event)
        timed: list[Sampled | Results] = [*self._sampled.values(), *self._results.values()]
        self.seconds = max((event.seconds for event in timed), default=0.0)
        """Spent on the episode by earlier runs."""

    def sampled(self, attempt: int, step: int) -> Sampled | None:
        return self._sampled.pop((attempt, step), None)

    def results(self, attempt: int, step: int) -> tuple[Node, ...] | None:
        event = self._results.pop((attempt, step), None)
        return None if event is None else event.nodes

    def end(self, attempt: int, steps: int) -> StopReason | None:
        """How the try ended, if it is on record that it ended after `steps` steps."""
        event = self._ends.get(attempt)
        return event.stop if event is not None and event.steps == steps else None

    def replaying(self, attempt: int, step: int) -> bool:
        return (attempt, step) in self._sampled

    def commit(self, event: Event) -> None:
        if self._journal is not None:
            self._journal.append(self._key, event)

    def _keep(self, event: Event) -> None:
        match event:
            case TryEnd():
                self._ends[event.attempt] = event
            case Sampled():
                self._sampled[event.attempt, event.step] = event
            case Results():
                self._results[event.attempt, event.step] = event
            case Rewind():
                place = event.attempt, event.step
                self._sampled = {at: kept for at, kept in self._sampled.items() if at <= place}
                self._results = {at: kept for at, kept in self._results.items() if at < place}
                self._ends = {attempt: kept for attempt, kept in self._ends.items() if attempt < event.attempt}
