"""Progress with an estimate of the time left, on a terminal as a bar, elsewhere as a plain line now and then.

    with progress("sft", total=400, done=120) as bar:
        bar.advance(1, note="loss 0.12")

    with board() as bars:  # several at once, told where they stand
        bar = bars.bar("sft", total=400, done=120)
        bar.set(121, note="loss 0.12")
        bar.close()

* The estimate counts the work of this process only: what a resumed run had done before says nothing about its speed.
* Without a terminal a line is printed at the start, every `every` seconds while work goes on, and at the end.
* Bars go to stderr; stdout is for results.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_TAIL = "{task.fields[tail]}"


class Bar(Protocol):
    def advance(self, n: int = 1, note: str = "") -> None:
        """`n` more units are done; `note` replaces the note shown before, "" keeps it."""
        ...


class BoardBar(Protocol):
    def set(self, done: int, total: int | None = None, note: str = "") -> None:
        """`done` units are done; a total of None and a note of "" keep what was told before."""
        ...

    def close(self) -> None:
        """The work is over: on a terminal the bar gives way to a line."""
        ...


class Board(Protocol):
    def bar(self, label: str, total: int | None = None, done: int = 0) -> BoardBar:
        """One more bar. While its total is unknown, what is done counts as done before."""
        ...


@contextmanager
def board(
    stream: TextIO | None = None, every: float = 10.0, clock: Callable[[], float] = time.monotonic
) -> Iterator[Board]:
    """Several bars at once, that come and go."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield _LineBoard(stream, every, clock)
        return
    columns = (_plain("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _plain(_TAIL))
    with Progress(*columns, console=Console(file=stream)) as live:
        yield _LiveBoard(live, clock)


@contextmanager
def progress(
    label: str,
    total: int | None = None,
    *,
    done: int = 0,
    stream: TextIO | None = None,
    every: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Bar]:
    """A bar over `total` units (None: unknown), `done` of which were done before."""
    stream = stream or sys.stderr
    pace = Pace(total, done, clock)
    if not stream.isatty():
        lines = _Lines(label, pace, stream, every)
        try:
            yield lines
        finally:
            lines.close()
        return
    columns = (_plain("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _plain(_TAIL))
    with Progress(*columns, console=Console(file=stream)) as live:
        yield _Live(live, live.add_task(label, total=total, completed=done, tail=""), pace)


@dataclass(slots=True)
class Pace:
    """How far the work is and how long the rest will take."""

    total: int | None
    done: int
    clock: Callable[[], float]
    begun_with: int = field(init=False)
    begun_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun_with, self.begun_at = self.done, self.clock()

    @property
    def elapsed(self) -> float:
        return self.clock() - self.begun_at

    @property
    def left(self) -> float | None:
        """Seconds; None while nothing is known."""
        here = self.done - self.begun_with
        if self.total is None or here <= 0:
            return None
        return max(self.total - self.done, 0) * self.elapsed / here


@dataclass(slots=True)
class _Lines:
    label: str
    pace: Pace
    stream: TextIO
    every: float
    note: str = ""
    due: float = 0.0
    written: int = -1

    def __post_init__(self) -> None:
        self.write()

    def advance(self, n: int = 1, note: str = "") -> None:
        self.pace.done += n
        self.note = note or self.note
        if self.pace.elapsed >= self.due:
            self.write()

    def close(self) -> None:
        if self.written != self.pace.done:
            self.write()

    def write(self) -> None:
        self.written = self.pace.done
        self.due = self.pace.elapsed + self.every
        of = f"/{self.pace.total}" if self.pace.total is not None else ""
        parts = [
            f"{self.label} {self.pace.done}{of}",
            f"{_clock(self.pace.elapsed)} elapsed",
            _left(self.pace),
            self.note,
        ]
        print(" · ".join(part for part in parts if part), file=self.stream, flush=True)


@dataclass(slots=True)
class _Live:
    live: Progress
    task: TaskID
    pace: Pace
    note: str = ""

    def advance(self, n: int = 1, note: str = "") -> None:
        self.pace.done += n
        self.note = note or self.note
        tail = " · ".join(part for part in (_left(self.pace), self.note) if part)
        self.live.update(self.task, advance=n, tail=tail)


@dataclass(slots=True)
class _LineBoard:
    stream: TextIO
    every: float
    clock: Callable[[], float]

    def bar(self, label: str, total: int | None = None, done: int = 0) -> BoardBar:
        return _BoardBar(_Lines(label, Pace(total, done, self.clock), self.stream, self.every))


@dataclass(slots=True)
class _LiveBoard:
    live: Progress
    clock: Callable[[], float]

    def bar(self, label: str, total: int | None = None, done: int = 0) -> BoardBar:
        task = self.live.add_task(label, total=total, completed=done, tail="")
        return _BoardBar(_Live(self.live, task, Pace(total, done, self.clock)), label)


@dataclass(slots=True)
class _BoardBar:
    bar: "_Lines | _Live"
    label: str = ""

    def set(self, done: int, total: int | None = None, note: str = "") -> None:
        pace = self.bar.pace
        if total is not None and pace.total is None:
            pace.total, pace.done = total, done
            pace.begun_with, pace.begun_at = done, pace.clock()
            if isinstance(self.bar, _Live):
                self.bar.live.update(self.bar.task, total=total, completed=done)
        self.bar.advance(done - pace.done, note)

    def close(self) -> None:
        if isinstance(self.bar, _Lines):
            self.bar.close()
            return
        pace = self.bar.pace
        self.bar.live.remove_task(self.bar.task)
        told = (f"{self.label} {pace.done}", _clock(pace.elapsed), self.bar.note)
        self.bar.live.console.print(" · ".join(part for part in told if part), markup=False, highlight=False)


def _plain(template: str) -> TextColumn:
    return TextColumn(template, markup=False)


def _left(pace: Pace) -> str:
    return "" if pace.left is None else f"{_clock(pace.left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
