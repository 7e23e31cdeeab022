"""The processes of a run: one, or those of a launcher (torchrun, accelerate, deepspeed).

* `open_processes` comes before anything else that asks accelerate who it is. On a machine without an accelerator it
  names gloo, without which accelerate takes every launched process for the only one and says nothing.
* DeepSpeed on CPUs also wants `DS_ACCELERATOR=cpu` in the environment, before the launch.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate import PartialState


def has_accelerator() -> bool:
    return torch.accelerator.is_available()


def open_processes(*, deepspeed: bool) -> PartialState:
    """Join the launcher's other processes, if there are any."""
    if has_accelerator() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return PartialState()
    if not deepspeed:
        return PartialState(cpu=True)
    # Without it accelerate's state knows of no DeepSpeed; with cpu=True it would silently drop it.
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    return PartialState(backend="gloo")


def whole_parameters(model: Any) -> AbstractContextManager[Any]:
    """Within the block every process holds all of `model`; ZeRO-3 otherwise leaves each a part.

    All must enter it, after training: it ends transformers' special treatment of ZeRO-3.
    """
    parameters = [p for p in model.parameters() if hasattr(p, "ds_id")]
    if not parameters:
        return nullcontext()
    from deepspeed import zero
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    # Else a model that one process loads (to verify what it wrote) would be shared out to all, who do not take part.
    unset_hf_deepspeed_config()
    context: AbstractContextManager[Any] = zero.GatheredParameters(parameters)
    return context
