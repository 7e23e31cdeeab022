"""What became of an episode.

* Every episode has exactly one `Outcome`. Infrastructure failures and judge outages have outcomes of their own, so that
  neither ever becomes a zero reward or a lost comparison. A tool that was unavailable is such a failure wherever the
  episode did not get it right all the same.
* `clean` outcomes enter baselines, rewards and paired comparisons. The others are counted and named, beside an
  evaluation's headline too, which is a share of all that was selected.
"""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    CORRECT = "correct"
    """The judge accepted the answer."""
    INCORRECT = "incorrect"
    """The judge rejected the answer."""
    NOT_ATTEMPTED = "not_attempted"
    """The agent ended without stating an answer, or said that it has none."""
    LIMIT = "limit"
    """A limit (turns, tokens, context, time) was reached before an answer was stated."""
    UNSCORED = "unscored"
    """An answer was stated and the judge failed: it may yet be scored."""
    ERRORED = "errored"
    """Infrastructure failed and retries were spent, or a tool was unavailable and the answer is not right: it may yet
    be run."""

    @property
    def clean(self) -> bool:
        """Says something about the agent: may earn a reward and stand in a baseline."""
        return self not in (Outcome.UNSCORED, Outcome.ERRORED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of one answer."""

    correct: bool
    judge: str
    """Name of the judge; results of different judges are not compared."""
    reason: str = ""
