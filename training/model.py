"""Model folders: what a policy is on disk, and how it is opened.

* A model folder holds `config.json`, `model.safetensors` (or shards) and, for text, `tokenizer.json`. Nothing is ever
  fetched: a name that is not a folder here is an `InputError`.
* `load_model` refuses a folder whose weights do not cover the model. transformers fills what is missing with random
  numbers and goes on, and fused expert weights are what goes missing first.
* Attention is torch's sdpa. Experts run as `grouped_mm`, the fastest implementation on a CPU for training and for
  sampling alike; `batched_mm` copies a weight matrix per token and must not be used for training.
* The router's load-balancing loss is off unless a weight for it is given. It does not take a 4-D attention mask, so
  whoever trains on packed trees leaves it off.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, Qwen3MoeConfig
from transformers.utils import logging

from configs.errors import InputError, boundary

EXPERTS = "grouped_mm"


def tiny_config(
    vocab_size: int, *, hidden_size: int = 128, layers: int = 3, experts: int = 8, context: int = 4096
) -> Qwen3MoeConfig:
    """The embedded default's shape: Qwen3-MoE, about 1.5 M parameters with 1,024 tokens and 128 hidden units.

    Heads are 32 wide and share keys and values in pairs, experts are as wide as the model, two of them see a token.
    Special token ids stay unset: they belong to the tokenizer and the generation config.
    """
    heads = max(2, hidden_size // 32)
    return Qwen3MoeConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=hidden_size // heads,
        moe_intermediate_size=hidden_size,
        num_experts=experts,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        tie_word_embeddings=True,
        max_position_embeddings=context,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        router_aux_loss_coef=0.01,
        output_router_logits=False,
    )


def new_model(config: Qwen3MoeConfig, *, seed: int) -> PreTrainedModel:
    """Random weights in float32 from `seed`, ready for training. The global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="sdpa", experts_implementation=EXPERTS
        )
    return model.train()


def load_model(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    *,
    for_training: bool,
    router_aux_loss: float | None = None,
) -> PreTrainedModel:
    """The causal language model in `folder`, on the CPU.

    `for_training` puts it in training mode without a generation cache; otherwise it is in eval mode and its parameters
    take no gradient. `router_aux_loss` is the weight of the load-balancing loss, None for no such loss. Raises
    InputError where the folder is not a complete model.
    """
    _require(folder, "config.json")
    logging.disable_progress_bar()
    with boundary(InputError, f"{folder} is not a usable model folder"):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        _set_router_loss(config, router_aux_loss)
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True, **_kernels(config)
        )
    _require_complete(folder, report)
    if for_training:
        model.config.use_cache = False
        return model.train()
    return model.eval().requires_grad_(False)


def load_tokenizer(folder: Path) -> Any:
    """The transformers tokenizer in `folder`, as trainers take it. Raises InputError where there is none."""
    _require(folder, "tokenizer.json")
    with boundary(InputError, f"{folder} holds no usable tokenizer"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _kernels(config: Any) -> dict[str, str]:
    kernels = {"attn_implementation": "sdpa"}
    if getattr(config, "num_experts", None):
        kernels["experts_implementation"] = EXPERTS
    return kernels


def _set_router_loss(config: Any, weight: float | None) -> None:
    if not hasattr(config, "output_router_logits"):
        return
    config.output_router_logits = weight is not None
    if weight is not None:
        config.router_aux_loss_coef = weight


def _require(folder: Path, name: str) -> None:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a folder that holds {name}")
    if not (folder / name).is_file():
        raise InputError(f"{folder} is not a model folder: it holds no {name}")


def _require_complete(folder: Path, report: dict[str, Any]) -> None:
    for kind in ("missing_keys", "mismatched_keys"):
        if keys := report.get(kind):
            first = sorted(str(key) for key in keys)[0]
            raise InputError(f"{folder}: {len(keys)} weights do not fit the model ({kind}), the first is {first}")
