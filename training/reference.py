"""The frozen reference policy of dpo and grpo: the checkpoint the stage starts from, never a later one."""

from typing import Any

from training.model import load_model
from training.scorer import add_scorer
from training.train_config import StageConfig
from training.trainer import StageTrainer


def frozen_reference(config: StageConfig, trainer: StageTrainer) -> Any:
    """The model of `config.model`, scored like the policy and placed like it, without gradients."""
    model = load_model(config.model, for_training=False)
    add_scorer(model)
    if trainer.is_deepspeed_enabled:
        from trl.models import prepare_deepspeed

        return prepare_deepspeed(model, trainer.accelerator)
    return trainer.accelerator.prepare_model(model, evaluation_mode=True)
