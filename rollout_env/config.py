"""The config of a run of rollouts: which model, which web, how failures are met."""

from typing import Literal

from pydantic import Field

from configs.schema import Config
from inference.llm.config import ModelConfig
from inference.web.config import EmbeddedWebConfig, WebConfig


class RolloutConfig(Config):
    model: ModelConfig | None = None
    """None: the command line must name one."""
    web: WebConfig = EmbeddedWebConfig()
    retries: int = Field(default=2, ge=0)
    """How often a rollout whose infrastructure failed is run again before it is kept as errored."""
    judge: Literal["exact"] = "exact"
    """Who says whether an answer is right. `exact`: equality with a gold answer after normalisation."""
    limit: int | None = Field(default=None, ge=1)
    """The first so many problems of the file. None: all."""
