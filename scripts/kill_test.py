"""Kills the demo in every step; the same command must end with the same tables. Run by hand: it takes a while.

    python -m scripts.kill_test --out runs/kill [--steps sft grpo ...] [--keep-facts] [key.path=value ...]

* The quick demo runs once uninterrupted (OUT/whole). Then for each step a copy of what it needs goes to OUT/STEP, the
  demo is started there and the command is killed (SIGKILL) when that step is half done; its children must be gone at
  once. The same command is run again to its end, and the two report/tables.json are compared: counts, accuracies,
  tests and rewards must be equal, losses within `_ROUNDING`. (A token's log-probability depends in its last digits on
  which other episodes are computed beside it, which no run repeats; so do losses over rollouts.)
* Unless told otherwise the fact tables are deleted from the copy as soon as no step needs them: the teacher, every
  evaluation and the verification pass must come out the same without them.
* Exit code 1 when any table differs or a child was left.
"""

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import RunFailed
from configs.loader import load, resolve
from scripts.cli import exit_code
from scripts.pipeline import Step, closure
from scripts.stages import demo
from scripts.stages_config import DemoConfig
from scripts.steps.folder import DONE, read_progress
from scripts.steps.report import TABLES

_PATIENCE = 1800.0
"""Seconds a step may take to come to its middle."""
_ROUNDING = 1e-4
"""Relative."""


@dataclass(frozen=True, slots=True)
class Outcome:
    step: str
    killed_at: str
    orphans: int
    """Children alive a second after the kill."""
    differences: tuple[str, ...]
    """Places of the tables that are not the same."""
    rounding: float
    """Largest relative difference of two numbers that count as the same."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.kill_test", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", nargs="*", metavar="STEP", help="default: every one")
    parser.add_argument("--keep-facts", action="store_true")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = parser.parse_intermixed_args(argv)
    return exit_code(lambda: run(args.out, args.steps, args.overrides, delete_facts=not args.keep_facts))


def run(out: Path, names: Sequence[str] | None, overrides: Sequence[str], *, delete_facts: bool) -> int:
    config = load(DemoConfig, [resolve("demo", "full"), resolve("demo", "quick")], overrides)
    steps = closure([demo(config, seed=0)])
    finish(out / "whole", overrides)
    outcomes = []
    for step in steps:
        if names is None or step.name in names:
            outcomes.append(kill_in(step, steps, out, overrides, delete_facts=delete_facts))
            print(_row(outcomes[-1]), flush=True)
    bad = [o for o in outcomes if o.orphans or o.differences]
    print(f"{len(outcomes) - len(bad)} of {len(outcomes)} steps: same tables, no child left")
    return 1 if bad else 0


def kill_in(step: Step, steps: Sequence[Step], out: Path, overrides: Sequence[str], *, delete_facts: bool) -> Outcome:
    folder = out / step.name
    shutil.rmtree(folder, ignore_errors=True)
    _copy(out / "whole", folder, {other.name for other in steps if step in closure([other])})
    if delete_facts and not any(one.spec.kind in ("corpus", "questions") for one in _undone(folder, steps)):
        for facts in folder.glob("*/facts.jsonl"):
            facts.unlink()
    process = start(folder, overrides)
    killed_at = wait_for_the_middle(folder / step.name, process)
    children = _children(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)
    orphans = sum(map(_is_alive, children))
    finish(folder, overrides)
    whole, again = (json.loads((root / "report" / TABLES).read_text("utf-8")) for root in (out / "whole", folder))
    apart = list(differences(whole, again))
    rounding = max((size for _, size in apart if size <= _ROUNDING), default=0.0)
    return Outcome(step.name, killed_at, orphans, tuple(place for place, size in apart if size > _ROUNDING), rounding)


def start(folder: Path, overrides: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The command, in a process group of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "scripts.cli", "demo", "--quick", "--out", str(folder), *overrides]
    with folder.with_name(f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, process_group=0)


def finish(folder: Path, overrides: Sequence[str]) -> None:
    """Run the command to its end. Raises RunFailed."""
    code = start(folder, overrides).wait()
    if code != 0:
        raise RunFailed(f"the demo in {folder} ended with {code} (log: {folder.with_name(folder.name + '.log')})")


def wait_for_the_middle(folder: Path, process: "subprocess.Popen[bytes]") -> str:
    """Until the step has begun, and where it knows its length, is half done; where it stood then."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / DONE).exists():
            return "just done"
        if (folder / "config.yaml").exists():
            now = read_progress(folder)
            if now.total and now.done >= now.total / 2:
                return f"{now.done}/{now.total}"
            if now.done and not now.total:
                return str(now.done)
        time.sleep(0.01)
    raise RunFailed(f"{folder}: the step did not come to its middle")


def differences(a: Any, b: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """(place, relative size) of everything in which two tables differ; infinite where they are not both numbers."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            yield from differences(a[key], b[key], f"{place}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, f"{place}/{i}")
    elif a != b:
        numbers = isinstance(a, float) and isinstance(b, float)
        yield place, abs(a - b) / max(abs(a), abs(b)) if numbers else math.inf


def _copy(whole: Path, folder: Path, without: set[str]) -> None:
    def skipped(at: str, names: list[str]) -> set[str]:
        return (
            {name for name in names if name in without or name.startswith((".lock", "report."))}
            if at == root
            else set()
        )

    root = str(whole)
    shutil.copytree(whole, folder, ignore=skipped)


def _undone(folder: Path, steps: Sequence[Step]) -> list[Step]:
    return [one for one in steps if not (folder / one.name / DONE).exists()]


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()


def _is_alive(pid: str) -> bool:
    """A zombie nobody has collected yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _row(outcome: Outcome) -> str:
    same = "same tables" if not outcome.differences else f"DIFFERENT in {len(outcome.differences)} places"
    more = f" ({', '.join(outcome.differences[:3])})" if outcome.differences else f" (rounding {outcome.rounding:.0e})"
    left = f", {outcome.orphans} CHILDREN LEFT" if outcome.orphans else ""
    return f"{outcome.step:20} killed at {outcome.killed_at:10} {same}{more}{left}"


if __name__ == "__main__":
    sys.exit(main())
