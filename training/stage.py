"""The life of a stage's run folder: claimed, trained or resumed, finished.

    run.json, config.yaml  whose folder this is
    inputs.json            hashes of the data files the run began with
    refused.jsonl          what could not be trained, with the reason
    checkpoints/           the last two
    metrics.jsonl          one record an optimizer step
    model/                 the finished model folder
    done.json              written last

* The same call again resumes from the last whole checkpoint, or returns at once when the run is done. A run killed at
  any moment and resumed ends with the weights of one that was not.
* Another config, or data files that changed meanwhile, are an `InputError`; nothing is touched. Bad input that is found
  before the first step leaves no claim behind.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import set_seed
from transformers.utils import logging

from configs.errors import ConfigError, InputError, RunFailed, StorageError, boundary
from configs.run_folder import open_run, released_on_bad_input
from inference.records import encode
from training.checkpoint import save_model
from training.collate import Shape, plan
from training.metrics import Metrics
from training.processes import open_processes, whole_parameters
from training.rows import Refusal
from training.train_config import DataStageConfig, StageConfig
from training.trainer import COMPLETE, StageTrainer

INPUTS = "inputs.json"
CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
MODEL = "model"
DONE = "done.json"
_FIRST = (INPUTS, "refused.jsonl", CHECKPOINTS)
"""What a run writes before it trains."""


def run_stage(
    kind: str,
    config: StageConfig,
    out: Path,
    inputs: Sequence[Path],
    build: Callable[[Path, Metrics], StageTrainer],
) -> Path:
    """Train what `build` (checkpoint folder, metrics) returns and save it; the model folder."""
    began = time.monotonic()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if config.deepspeed is not None:
        _check_deepspeed(config.deepspeed)
    with open_processes(deepspeed=config.deepspeed is not None).main_process_first():
        folder = open_run(out, f"train {kind}", config)
        with released_on_bad_input(folder, *_FIRST):
            _claim_inputs(out, inputs)
    if (out / DONE).exists():
        return out / MODEL
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    metrics = Metrics(out / METRICS)
    with released_on_bad_input(folder, *_FIRST):
        trainer = build(out / CHECKPOINTS, metrics)
    checkpoint = last_checkpoint(out / CHECKPOINTS)
    metrics.rewind(0 if checkpoint is None else _step(checkpoint))
    with released_on_bad_input(folder, *_FIRST), boundary(RunFailed, f"train {kind}"):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    _finish(trainer, config, out, time.monotonic() - began)
    return out / MODEL


def last_checkpoint(folder: Path) -> Path | None:
    """The latest whole checkpoint; those cut short by a crash are deleted."""
    if not folder.exists():
        return None
    found = [path for path in folder.glob("checkpoint-*") if path.is_dir()]
    whole = [path for path in found if (path / COMPLETE).exists()]
    for path in set(found) - set(whole):
        shutil.rmtree(path, ignore_errors=True)
    return max(whole, key=_step, default=None)


def plan_data(config: DataStageConfig, shapes: Sequence[Shape]) -> tuple[list[list[int]], int]:
    """The micro-batches of the whole stage, those of all processes, and its optimizer steps."""
    per_step = config.accumulate * PartialState().num_processes
    batches = plan(shapes, config.batch_tokens, config.seed, per_step, epochs=config.epochs, steps=config.steps)
    return batches, len(batches) // per_step


def write_refusals(out: Path, refused: Iterable[Refusal]) -> None:
    """`refused.jsonl`, replaced whole; absent when nothing was refused."""
    lines = [encode("refusal", refusal.id, refusal) for refusal in refused]
    with boundary(StorageError, f"{out / 'refused.jsonl'}: cannot write"):
        if lines:
            (out / "refused.jsonl").write_bytes(b"".join(lines))


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _claim_inputs(out: Path, inputs: Sequence[Path]) -> None:
    path, hashes = out / INPUTS, {str(file): _digest(file) for file in inputs}
    if not path.exists():
        _write_json(path, hashes)
        return
    with boundary(InputError, f"{path}: unreadable"):
        began_with = json.loads(path.read_text(encoding="utf-8"))
    changed = [name for name, digest in hashes.items() if began_with.get(name) != digest]
    if changed:
        raise InputError(f"{changed[0]}: has changed since the run in {out} began; choose another --out")


def _check_deepspeed(file: Path) -> None:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON; deepspeed takes DeepSpeed's own config") from error
    if not isinstance(settings, dict):
        raise InputError(f"{file}: not a JSON object; deepspeed takes DeepSpeed's own config")
    if "WORLD_SIZE" not in os.environ:
        raise ConfigError("deepspeed: needs a launcher: torchrun -m scripts.cli train ..., or drop the key")


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error


def _finish(trainer: StageTrainer, config: StageConfig, out: Path, seconds: float) -> None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    with whole_parameters(model):
        if trainer.is_world_process_zero():
            save_model(model, out / MODEL, tokenizer_from=config.model)
    if trainer.is_world_process_zero():
        _write_json(out / DONE, {"schema": 1, "steps": trainer.state.global_step, "seconds": round(seconds, 3)})
    trainer.accelerator.wait_for_everyone()


def _write_json(path: Path, value: Any) -> None:
    partial = path.with_name(f".{path.name}.tmp")
    with boundary(StorageError, f"{path}: cannot write"), partial.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
