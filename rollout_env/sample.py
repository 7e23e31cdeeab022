"""Samples: an episode with all that was found out about it, and the groups that baselines are taken over.

* `score` keeps the order of its episodes and gives each exactly one sample; an episode of an unknown question is an
  `InputError`.
* `groups` holds clean samples only, by question, in order of first appearance: what is not clean is in no baseline.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from configs.errors import InputError
from inference.types import Episode
from rollout_env.judge import Judge, classify
from rollout_env.outcome import Outcome, Verdict
from rollout_env.problem import Problem
from rollout_env.reward import Reward, RewardConfig, reward


@dataclass(frozen=True, slots=True)
class Sample:
    problem: Problem
    episode: Episode
    outcome: Outcome
    verdict: Verdict | None
    """None where no judge was asked, or the judge failed."""
    reward: Reward | None
    """None when the outcome is not clean."""


async def score(
    problems: Iterable[Problem], episodes: Iterable[Episode], judge: Judge, weights: RewardConfig
) -> list[Sample]:
    """Judge every episode against its problem."""
    by_id = {problem.question.id: problem for problem in problems}
    samples = []
    for episode in episodes:
        problem = by_id.get(episode.key.question_id)
        if problem is None:
            raise InputError(f"episode {episode.key} answers a question that is not among the problems")
        outcome, verdict = await classify(episode, problem, judge)
        samples.append(Sample(problem, episode, outcome, verdict, reward(episode, outcome, weights)))
    return samples


def groups(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Clean samples by question id."""
    grouped: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.outcome.clean:
            grouped.setdefault(sample.problem.question.id, []).append(sample)
    return grouped
