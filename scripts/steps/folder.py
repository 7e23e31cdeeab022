"""A step's folder: whose it is, how far it is, whether it is done.

    run.json, config.yaml  the claim and the `StepSpec`; a folder of another spec is refused, nothing in it is touched
    progress.json          how far it is: units done, units in all, a note, seconds and memory so far
    log.txt                what its processes wrote
    done.json              written last, in one piece: key, seconds over all its processes, peak memory, results

A step counts as done when its done.json holds its key.
"""

import json
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from configs.errors import InputError, StorageError, boundary
from configs.loader import content_hash
from configs.run_folder import RunFolder, open_run
from scripts.pipeline import Step, StepSpec

CONFIG, LOG, PROGRESS, DONE = "config.yaml", "log.txt", "progress.json", "done.json"
_EVERY = 0.25
"""Seconds between two progress records."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Progress:
    done: int = 0
    total: int | None = None
    note: str = ""
    seconds: float = 0.0
    """Wall-clock, over all processes the step has had."""
    cpu_seconds: float = 0.0
    peak_mib: float = 0.0
    """Most resident memory of any of its processes."""


@dataclass(frozen=True, slots=True)
class Done:
    key: str
    seconds: float
    cpu_seconds: float
    peak_mib: float
    results: dict[str, Any] = field(default_factory=dict)
    """What the step found out, as plain JSON."""


def claim(root: Path, step: Step) -> RunFolder:
    """Make the folder of `step`, or find it as an earlier run left it. Raises InputError when it is another's."""
    return open_run(root / step.name, f"step {step.spec.kind}", step.spec)


def check_claim(root: Path, step: Step) -> None:
    """Raise InputError when the folder is there and not this step's. Nothing is written."""
    folder = root / step.name
    if folder.is_dir() and any(folder.iterdir()):
        claim(root, step)


def read_done(folder: Path, key: str) -> Done | None:
    """The record of the step, or None while it is not done. Raises InputError when it is done under another key."""
    done = _read(folder / DONE, Done)
    if done is not None and done.key != key:
        raise InputError(f"{folder}: holds another run (done under key {done.key}, not {key}): choose another --out")
    return done


def read_progress(folder: Path) -> Progress:
    """The newest record; of a step that has not begun, nothing done."""
    return _read(folder / PROGRESS, Progress) or Progress()


class Meter:
    """Writes the progress of the one process that works in `folder`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder / PROGRESS
        self._clock = clock
        self._before = read_progress(folder)
        self._began = self._due = clock()
        self._last = self._before

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """`done` of `total` units are done; a note of "" keeps the one before."""
        self._last = Progress(done, total, note or self._last.note, *self._spent())
        if self._clock() >= self._due or done == total:
            self._due = self._clock() + _EVERY
            write_json(self._path, asdict(self._last))

    def close(self, spec: StepSpec, folder: Path, results: dict[str, Any]) -> None:
        """The step is done."""
        write_json(folder / DONE, asdict(Done(content_hash(spec), *self._spent(), results)))

    def _spent(self) -> tuple[float, float, float]:
        """(seconds, cpu seconds, MiB), earlier processes of the step included."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        unit = 2**20 if sys.platform == "darwin" else 2**10
        seconds = self._before.seconds + self._clock() - self._began
        cpu = self._before.cpu_seconds + usage.ru_utime + usage.ru_stime
        return round(seconds, 3), round(cpu, 3), round(max(self._before.peak_mib, usage.ru_maxrss / unit), 1)


def write_json(path: Path, value: Any) -> None:
    """Replace `path` in one piece; a number that is none becomes null. Raises StorageError."""
    part = path.with_name(f".{path.name}.tmp")
    with boundary(StorageError, f"{path}: cannot write"):
        part.write_text(json.dumps(_finite(value), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(path)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(path: Path, record: type[R]) -> R | None:
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        return record(**{f.name: row[f.name] for f in fields(record)})  # type: ignore[arg-type]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a record of this program ({type(error).__name__})") from error
