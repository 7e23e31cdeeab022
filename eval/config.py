"""The config of an evaluation: a run of rollouts, and how it is scored and shown."""

from typing import Literal

from pydantic import Field

from rollout_env.config import RolloutConfig


class EvalConfig(RolloutConfig):
    judge: Literal["exact"] = "exact"
    """Who says whether an answer is right. `exact`: equality with a gold answer after normalisation."""
    examples: int = Field(default=3, ge=0)
    """Trajectories that the report shows step by step, right and wrong ones."""
