"""`proofhound train mid|sft|dpo|grpo`: one stage of training.

* Without `-c` the packaged `configs/train/<stage>.yaml` is used, which fits the tiny model; `model=` and the data are
  given as overrides. `--seed` holds unless a config file or an override sets `seed`.
* torchrun, accelerate and deepspeed launch the same module: `torchrun -m scripts.cli train ...`. The first process
  prints.
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from configs.loader import load, resolve
from scripts.progress import Bar, progress
from training.metrics import Progress
from training.train_config import DpoConfig, GrpoConfig, LmConfig, StageConfig

C = TypeVar("C", bound=StageConfig)


def run(args: argparse.Namespace) -> int:
    with _progress(args.stage) as show:
        model = _train(args, show)
    if _first_process():
        print(model)
    return 0


def _train(args: argparse.Namespace, show: Progress | None) -> Path:
    # One stage's imports cost seconds; the others' are not paid.
    if args.stage == "dpo":
        from training import dpo

        return dpo.run(_config(DpoConfig, args), args.out, show)
    if args.stage == "grpo":
        from training import grpo

        return grpo.run(_config(GrpoConfig, args), args.out, show)
    from training import lm

    return lm.run(_config(LmConfig, args, f"stage={args.stage}"), args.out, show)


def _config(schema: type[C], args: argparse.Namespace, *fixed: str) -> C:
    files = args.config or [resolve("train", args.stage)]
    config = load(schema, files, [*args.overrides, *fixed])
    return config if "seed" in config.model_fields_set else config.model_copy(update={"seed": args.seed})


@contextmanager
def _progress(stage: str) -> Iterator[Progress | None]:
    """A bar that opens with the first step done, when it is known where the run resumed."""
    if not _first_process():
        yield None
        return
    with ExitStack() as stack:
        bars: list[Bar] = []

        def show(done: int, total: int, values: Mapping[str, float]) -> None:
            if not bars:
                bars.append(stack.enter_context(progress(stage, total, done=done - 1)))
            bars[0].advance(1, note=_note(values))

        yield show


def _note(values: Mapping[str, float]) -> str:
    shown = [name for name in ("reward", "accuracy", "loss") if name in values]
    return " · ".join(f"{name} {values[name]:.3g}" for name in shown[:2])


def _first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
