"""What every step that runs agents shares: agents over several corpora at once, and rollouts with progress.

Only the pages of a corpus are opened, never its facts.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from configs.errors import InputError, RunFailed
from data_synthesis.corpus import corpus_name
from inference.journal import Journal
from inference.tools.config import WebLimits
from inference.tools.protocol import Tool
from inference.types import Episode, EpisodeKey, Question, StopReason
from inference.web.config import EmbeddedWebConfig
from inference.web.open import open_web
from rollout_env.judge import match
from rollout_env.problem import Gold, Problem
from rollout_env.runner import Agent, read_episodes, rollout
from scripts.steps.folder import Meter

_MOST_ERRORED = 0.05
"""Share of episodes that may end errored before the step fails: the embedded web and model have no excuse."""


@asynccontextmanager
async def open_webs(corpora: Mapping[str, Path], limits: WebLimits) -> AsyncIterator[dict[str, list[Tool]]]:
    """The tools over each corpus, by the name its questions carry."""
    async with AsyncExitStack() as stack:
        tools: dict[str, list[Tool]] = {}
        for folder in corpora.values():
            web = EmbeddedWebConfig(**{k: getattr(limits, k) for k in WebLimits.model_fields}, corpus=str(folder))
            tools[corpus_name(folder)] = list((await stack.enter_async_context(open_web(web))).values())
        yield tools


class ByWorld:
    """Sends each question to the agent whose tools search the world it was made over."""

    def __init__(self, agents: Mapping[str, Agent], problems: Sequence[Problem]) -> None:
        """Raises InputError where a problem's world has no agent."""
        self._agents = {problem.question.id: agents.get(problem.provenance.world) for problem in problems}
        for problem in problems:
            if self._agents[problem.question.id] is None:
                raise InputError(f"question {problem.question.id}: no corpus is called {problem.provenance.world!r}")

    async def run(self, question: Question, key: EpisodeKey, journal: Journal | None = None) -> Episode:
        agent = self._agents[question.id]
        assert agent is not None
        return await agent.run(question, key, journal)


async def roll_out(
    problems: Sequence[Problem], agent: Agent, meter: Meter, out: Path, *, samples: int, seed: int, concurrency: int
) -> list[Episode]:
    """The episodes in order, kept in `out`. Raises RunFailed when too many errored."""
    gold = {problem.question.id: problem.gold for problem in problems}
    wanted = {EpisodeKey(name, sample, seed) for name in gold for sample in range(samples)}
    settled = {k: e for k, e in read_episodes(out).items() if k in wanted and e.stop is not StopReason.ERRORED}
    done = len(settled)
    right = sum(_is_right(episode, gold) for episode in settled.values())
    meter.update(done, len(wanted))

    def on_episode(episode: Episode) -> None:
        nonlocal done, right
        done, right = done + 1, right + _is_right(episode, gold)
        meter.update(done, len(wanted), f"{right / done:.0%} right")

    episodes = await rollout(
        [problem.question for problem in problems],
        samples=samples,
        agent=agent,
        seed=seed,
        concurrency=concurrency,
        out=out,
        on_episode=on_episode,
    )
    errored = [episode for episode in episodes if episode.stop is StopReason.ERRORED]
    if len(errored) > _MOST_ERRORED * len(episodes):
        raise RunFailed(f"{len(errored)} of {len(episodes)} episodes errored; the last one: {errored[-1].error}")
    return episodes


def _is_right(episode: Episode, gold: Mapping[str, Gold]) -> bool:
    return episode.answer is not None and match(episode.answer.text, gold[episode.key.question_id]) is not None
