"""The config of an evaluation: a run of rollouts, and how it is scored and shown."""

from pydantic import Field

from rollout_env.config import RolloutConfig


class EvalConfig(RolloutConfig):
    examples: int = Field(default=3, ge=0)
    """Trajectories that the report shows step by step, right and wrong ones."""
