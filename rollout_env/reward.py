"""The reward of an episode: R = α_c · correct − α_f · format (MiroThinker-1.7, §4.4).

* `correct` is 1 for a correct answer and 0 for every other clean outcome.
* `format` is 1 when the episode ends without one valid final answer, or any of its turns held a call that could not be
  read, executed as written, or was cut; else 0. It is a penalty and never a bonus: a well-formed wrong answer earns
  nothing, so there is no reward to be had from form alone.
* The components stay apart, so a rise in one cannot hide a fall of the other.
* Outcomes that are not clean have no reward at all (None): they stand in no baseline.
"""

from dataclasses import dataclass

from pydantic import Field

from configs.schema import Config
from inference.types import Episode
from rollout_env.outcome import Outcome


class RewardConfig(Config):
    correct: float = Field(default=1.0, ge=0)
    """α_c, what a correct answer earns."""
    format: float = Field(default=0.1, ge=0)
    """α_f, what a breach of form costs."""


@dataclass(frozen=True, slots=True)
class Reward:
    total: float
    correct: float
    """0 or 1, before its weight."""
    format: float
    """0 or 1, before its weight; 1 is a breach."""


def reward(episode: Episode, outcome: Outcome, config: RewardConfig) -> Reward | None:
    """The reward, or None when the outcome is not clean."""
    if not outcome.clean:
        return None
    correct = float(outcome is Outcome.CORRECT)
    breach = float(breaks_format(episode))
    return Reward(config.correct * correct - config.format * breach, correct, breach)


def breaks_format(episode: Episode) -> bool:
    """No valid final answer, or a malformed turn in any try."""
    return episode.answer is None or any(step.malformed for attempt in episode.tries for step in attempt.steps)
