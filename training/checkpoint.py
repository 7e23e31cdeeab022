"""Checkpoints that hold what they say, and trainers that resume from all of it.

* `save_model` writes a model folder beside its place, reads it back, compares every weight bit for bit, and only then
  renames it. A folder of that name is complete or not there. One that stood there before is moved aside
  for the moment between two renames and then removed; what a killed run left unfinished is cleared by the next.
* `ExpertSafeTrainerMixin` mends transformers' resume: `Trainer` (5.24, `_load_from_checkpoint`) loads a checkpoint's
  tensors non-strictly, but a checkpoint stores each expert apart and the model holds them fused, so expert weights
  are silently left as they were. With the mixin the checkpoint is opened by `from_pretrained`, which fuses them, and
  loaded strictly. DeepSpeed, FSDP and adapters keep transformers' own way: they restore their own shards.
* `verify_resume` says whether a model's weights are a folder's.
"""

import copy
import os
import shutil
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from configs.errors import InputError, RunFailed, StorageError, boundary

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)


def save_model(
    model: PreTrainedModel,
    folder: Path,
    *,
    tokenizer_from: Path | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write `model` to `folder`, verified and in one rename; the folder's parent is made where it is missing.

    `tokenizer_from` is a model folder whose tokenizer files are copied; `dtype` stores the weights in another type than
    they have. Raises StorageError where the disk refuses, RunFailed where what was read back differs.
    """
    if dtype is not None and dtype != model.dtype:
        model = cast(PreTrainedModel, copy.deepcopy(model).to(dtype))
    unfinished = folder.with_name(f".{folder.name}.writing")
    try:
        with boundary(StorageError, f"saving {folder}"):
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            model.save_pretrained(unfinished)
            _copy_tokenizer(tokenizer_from, unfinished)
            _flush(unfinished)
        verify_resume(model, unfinished)
        with boundary(StorageError, f"saving {folder}"):
            _put_in_place(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def verify_resume(model: PreTrainedModel, folder: Path) -> None:
    """Raise RunFailed unless every weight of `model`, its experts' too, equals the one stored in `folder`."""
    stored = read_weights(type(model), folder, model.dtype)
    for name, weight in model.state_dict().items():
        if name not in stored or not torch.equal(weight.cpu(), stored[name]):
            raise RunFailed(f"{folder}: the stored weight {name} is not the model's")


def read_weights(kind: type[PreTrainedModel], folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """The state dict of a model folder, experts fused as the model holds them. Raises InputError where one lacks."""
    with boundary(InputError, f"{folder} is not a usable checkpoint"):
        model, report = kind.from_pretrained(folder, dtype=dtype, local_files_only=True, output_loading_info=True)
    if missing := sorted(str(key) for key in report["missing_keys"]):
        raise InputError(f"{folder} lacks {len(missing)} of the model's weights, the first is {missing[0]}")
    weights: dict[str, Tensor] = model.state_dict()
    return weights


class _Trainer(Protocol):
    """What the mixin uses of transformers.Trainer."""

    model: Any
    state: Any
    is_deepspeed_enabled: bool
    is_fsdp_enabled: bool


class ExpertSafeTrainerMixin:
    """Put before a `transformers.Trainer` class: `class Sft(ExpertSafeTrainerMixin, SFTTrainer)`."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if _restores_its_own_shards(cast(_Trainer, self)):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        _load_strictly(model if model is not None else cast(_Trainer, self).model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        trainer = cast(_Trainer, self)
        if _restores_its_own_shards(trainer):
            super()._load_best_model()  # type: ignore[misc]
            return
        _load_strictly(trainer.model, Path(trainer.state.best_model_checkpoint))


def _restores_its_own_shards(trainer: _Trainer) -> bool:
    return trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or not isinstance(trainer.model, PreTrainedModel)


def _load_strictly(model: PreTrainedModel, folder: Path) -> None:
    model.load_state_dict(read_weights(type(model), folder, model.dtype), strict=True)


def _copy_tokenizer(source: Path | None, target: Path) -> None:
    if source is None:
        return
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _flush(folder: Path) -> None:
    """Everything in `folder` reaches the disk before the rename does."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _put_in_place(finished: Path, folder: Path) -> None:
    replaced = folder.with_name(f".{folder.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if folder.exists():
        folder.rename(replaced)
    finished.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)
