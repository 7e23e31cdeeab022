"""The one runner: questions in, episodes out. Training rollouts, evaluation and difficulty tests all use it.

* Result order is input order (question by question, sample by sample), whatever the order of completion.
* What an episode samples depends on its key alone, so concurrency, order and interruptions change no result.
* With `out`, each finished episode is appended to `out/episodes.jsonl` before anyone hears of it, and running the same
  call again runs only the keys that are missing there. Steps of unfinished episodes are in `out/journal.jsonl`, from
  which the agent goes on. An errored episode is unfinished business: it is kept and shown, and a rerun tries it again.
* A rollout that ends errored, or whose agent raises an `InfraError`, is run again up to `retries` times.
* Cancellation and errors leave no task running and no half-written line.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from inference.types import Episode, EpisodeKey, Question

EPISODES = "episodes.jsonl"
JOURNAL = "journal.jsonl"


class Agent(Protocol):
    async def run(self, question: Question, key: EpisodeKey, journal: Any = None) -> Episode:
        """One episode. Raises InfraError, or returns an episode whose stop is `errored`, when infrastructure failed."""
        ...


async def rollout(
    questions: Sequence[Question],
    *,
    samples: int,
    agent: Agent,
    seed: int,
    concurrency: int,
    out: Path | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    retries: int = 2,
) -> list[Episode]:
    """`samples` episodes of each question, in input order; `on_episode` hears each as it finishes (or is resumed)."""
    raise NotImplementedError
