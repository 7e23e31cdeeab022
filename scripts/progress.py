"""Progress with an estimate of the time left, on a terminal as a bar, elsewhere as a plain line now and then.

    with progress("sft", total=400, done=120) as bar:
        bar.advance(1, note="loss 0.12")

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


def _plain(template: str) -> TextColumn:
    return TextColumn(template, markup=False)


def _left(pace: Pace) -> str:
    return "" if pace.left is None else f"{_clock(pace.left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
