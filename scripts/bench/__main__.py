"""Run every measurement of this folder with its defaults: `python -m scripts.bench [NAME ...]`.

Each module runs in a process of its own, so the peak memory it reports is its own. Exit code 1: one of them failed.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from configs.errors import InputError
from scripts.cli import exit_code

HERE = Path(__file__).parent


def run(names: list[str]) -> int:
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    for name in names:
        if name not in known:
            raise InputError(f"no measurement {name!r}; there are {', '.join(known)}")
    return max([_measure(name) for name in names or known], default=0)


def _measure(name: str) -> int:
    print(f"## {name}\n", flush=True)
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", f"scripts.bench.{name}"])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    failed = f" FAILED ({child.returncode})" if child.returncode else ""
    peak = usage.ru_maxrss / (1 << 20 if sys.platform != "darwin" else 1 << 30)
    print(f"\n{name}:{failed} {time.perf_counter() - start:.1f} s, peak {peak:.2f} GiB\n", flush=True)
    return int(child.returncode != 0)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(sys.argv[1:])))
