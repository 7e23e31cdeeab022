"""One step in a process of its own: `python -m scripts.steps FOLDER [--parent PID]`.

* Runs in the pipeline's folder; FOLDER is the step's, claimed, and its config.yaml says what to do.
* A step that is done is left as it is. One that was cut short goes on where its own records end.
* With `--parent` the process dies with that one, whatever way it dies.
* Exit codes as everywhere: 0 done, 1 the run failed, 2 bad input.
"""

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path

from scripts.cli import exit_code

_PR_SET_PDEATHSIG = 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.steps")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parent", type=int)
    args = parser.parse_args()
    if args.parent is not None:
        die_with(args.parent)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

    from scripts.steps.work import carry_out

    return exit_code(lambda: carry_out(args.folder))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux; elsewhere an orphan finishes its step)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
