"""Carries out a pipeline: each step in a process of its own, so many at a time, with progress.

* Every folder is checked before anything starts: one that holds another run ends it (InputError), nothing is touched.
* A step that is done is not done again. The same call after any interruption goes on; results are the same.
* When a step fails the others are ended too, and one line names it and its log (RunFailed).
* No child outlives this process: on Ctrl-C and on errors it ends them, and when it is killed the kernel does.
* Two calls never work in one folder at a time.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from configs.errors import InputError, RunFailed
from configs.run_folder import open_run
from configs.schema import Config
from scripts.pipeline import Schedule, Step
from scripts.progress import Board, BoardBar, board
from scripts.steps.folder import LOG, check_claim, claim, read_done, read_progress

_POLL = 0.2
"""Seconds."""
_EVERY = 20.0
"""Seconds between two lines about a step, where there is no terminal."""
_WEIGHTS = {"train": 100.0, "rollouts": 25.0, "teacher": 10.0}
"""What a step of a kind takes beside one of any other kind, roughly: for the estimate of the whole."""
_GRACE = 5.0
"""Seconds between asking a child to end and ending it."""
_FULL = 2**20
"""Bytes: a disk with less is full."""
_SOURCE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Usage:
    """Of this call, its children included."""

    seconds: float
    peak_mib: float
    """Most resident memory of all processes together; 0 where the system does not tell."""


class _Claim(Config):
    """The pipeline's folder itself is claimed by kind alone; whose its steps are, they say themselves."""


@dataclass(slots=True)
class _Child:
    step: Step
    process: "subprocess.Popen[bytes]"
    bar: BoardBar


def run_pipeline(
    root: Path, kind: str, steps: Sequence[Step], workers: int, on_usage: Callable[[Usage], None] = lambda usage: None
) -> Usage:
    """Do what is not done yet. Raises UsageError, RunFailed, KeyboardInterrupt.

    `on_usage` is told once the folder is found fit, and whenever a step is done, before the next one starts.
    """
    open_run(root, kind, _Claim())
    with _only_one(root):
        for one in steps:
            check_claim(root, one)
        done = [one.name for one in steps if read_done(root / one.name, one.key) is not None]
        on_usage(Usage(0.0, 0.0))
        with board(every=_EVERY) as bars:
            return _Conductor(root, steps, workers, done, bars, on_usage).run()


class _Conductor:
    def __init__(
        self,
        root: Path,
        steps: Sequence[Step],
        workers: int,
        done: Sequence[str],
        bars: Board,
        on_usage: Callable[[Usage], None],
    ) -> None:
        self._root = root
        self._on_usage = on_usage
        self._schedule = Schedule(steps, workers, done)
        self._bars = bars
        self._parts = {one.name: float(one.name in done) for one in steps}
        self._weights = {one.name: _WEIGHTS.get(one.spec.kind, 1.0) for one in steps}
        self._whole = bars.bar("percent of all steps", 100, self._percent())
        self._children: list[_Child] = []
        self._began = time.monotonic()
        self._peak = 0.0

    def run(self) -> Usage:
        try:
            while not self._schedule.over:
                self._children += [self._start(one) for one in self._schedule.start()]
                time.sleep(_POLL)
                self._peak = max(self._peak, _resident_mib([child.process.pid for child in self._children]))
                for child in list(self._children):
                    self._look_at(child)
                self._whole.set(self._percent())
        finally:
            _end([child.process for child in self._children])
        self._whole.close()
        return self._usage()

    def _usage(self) -> Usage:
        return Usage(time.monotonic() - self._began, self._peak)

    def _start(self, one: Step) -> _Child:
        claim(self._root, one)
        bar = self._bars.bar(one.name, None, 0)
        with (self._root / one.name / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "scripts.steps", one.name, "--parent", str(os.getpid())],
                cwd=self._root,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C reaches this process alone, which ends the children in its own order
            )
        return _Child(one, process, bar)

    def _look_at(self, child: _Child) -> None:
        code = child.process.poll()
        folder = self._root / child.step.name
        now = read_progress(folder)
        child.bar.set(now.done, now.total, now.note)
        if now.total:
            self._parts[child.step.name] = min(now.done / now.total, 1.0)
        if code is None:
            return
        self._children.remove(child)
        if code != 0 or read_done(folder, child.step.key) is None:
            raise RunFailed(f"step {child.step.name} failed: {_last_line(folder / LOG, code)} (log: {folder / LOG})")
        child.bar.close()
        self._schedule.finish(child.step.name)
        self._parts[child.step.name] = 1.0
        self._on_usage(self._usage())

    def _percent(self) -> int:
        whole = sum(self._weights.values())
        return int(100 * sum(self._weights[name] * part for name, part in self._parts.items()) / whole + 1e-9)


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    with (root / ".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{root}: another process is at work there") from error
        yield


def _environment() -> dict[str, str]:
    """The children find this very source, wherever they run, and compute on one thread each."""
    path = os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Ask them to end, and end those that do not. Everything they do can be cut short anywhere."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """To the child and whatever it started."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _last_line(log: Path, code: int) -> str:
    """What the step said last, or how it ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if code < 0:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    full = "; the disk is full" if shutil.disk_usage(log.parent).free < _FULL else ""  # it could say nothing, then
    return said.removeprefix("error: ") or f"exit code {code}{full}"


def _resident_mib(children: Sequence[int]) -> float:
    """Resident memory of this process and `children` together; 0 where /proc does not tell."""
    total = 0
    for pid in (os.getpid(), *children):
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20
