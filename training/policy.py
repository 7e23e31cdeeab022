"""The two models of a stage: the policy it trains, and the frozen reference it is compared with.

* Both are the checkpoint the stage starts from: the reference is never a later one. Both are scored alike.
"""

from typing import Any

from inference.llm.render import ChatMLRenderer
from training.model import load_model
from training.scorer import add_scorer
from training.train_config import StageConfig
from training.trainer import StageTrainer


def open_policy(config: StageConfig) -> tuple[Any, ChatMLRenderer]:
    """The model to train, and the renderer of its tokens. Raises InputError where there is no model folder."""
    model = load_model(config.model, for_training=True)
    add_scorer(model)
    return model, ChatMLRenderer(config.model / "tokenizer.json")


def frozen_reference(config: StageConfig, trainer: StageTrainer) -> Any:
    """The reference, placed as the trainer places its policy, without gradients."""
    model = load_model(config.model, for_training=False)
    add_scorer(model)
    if trainer.is_deepspeed_enabled:
        from trl.models import prepare_deepspeed

        return prepare_deepspeed(model, trainer.accelerator)
    return trainer.accelerator.prepare_model(model, evaluation_mode=True)
