"""The step `rollouts`: a model's episodes on a set of problems, and their scores.

* Inputs: `model` (a folder), `problems` (a file), `corpus_NAME`.
* episodes.jsonl has the episodes, scores.jsonl their scores, problems.jsonl the problems that were run.
* With `shards` the problems are dealt to so many steps, of which this one is number `shard`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from pydantic import Field

from configs.schema import Config
from eval.score import score_episodes, summarise, write_scores
from inference.agent import Agent, AgentConfig
from inference.llm.config import EmbeddedModelConfig
from inference.tools.config import WebLimits
from inference.types import Episode
from rollout_env.judge import ExactJudge
from rollout_env.problem import Problem, read_problems, write_problems
from scripts.compose import open_llm
from scripts.steps.episodes import ByWorld, open_webs, roll_out
from scripts.steps.work import Task

PROBLEMS = "problems.jsonl"


class RolloutSettings(Config):
    agent: AgentConfig
    web: WebLimits
    samples: int = Field(ge=1)
    """Episodes a question."""
    concurrency: int = Field(ge=1)
    """Episodes at a time."""
    slots: int = Field(ge=1)
    """Conversations whose computed prefixes the engine keeps; fewer than `concurrency` costs time."""
    limit: int | None = Field(default=None, ge=1)
    """The first so many problems. None: all."""
    shard: int = Field(default=0, ge=0)
    shards: int = Field(default=1, ge=1)


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(RolloutSettings)
    problems = read_problems(task.input("problems"))[: settings.limit][settings.shard :: settings.shards]
    write_problems(task.folder / PROBLEMS, problems)
    episodes = asyncio.run(_roll_out(task, settings, problems))
    scores = asyncio.run(score_episodes(problems, episodes, ExactJudge(), samples=settings.samples))
    write_scores(task.folder, scores)
    summary = summarise(scores)
    return {
        "episodes": len(episodes),
        "accuracy": summary.accuracy.mean,
        "turns": summary.turns,
        "sampled_tokens": sum(episode.usage.completion_tokens for episode in episodes),
        "prompt_tokens": sum(episode.usage.prompt_tokens for episode in episodes),
    }


async def _roll_out(task: Task, settings: RolloutSettings, problems: Sequence[Problem]) -> list[Episode]:
    model = EmbeddedModelConfig(
        path=str(task.input("model")), slots=settings.slots, context=settings.agent.context_tokens
    )
    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(open_llm(model))
        webs = await stack.enter_async_context(open_webs(task.inputs("corpus_"), settings.web))
        agents = {world: Agent(settings.agent, llm, tools) for world, tools in webs.items()}
        return await roll_out(
            problems,
            ByWorld(agents, problems),
            task.meter,
            task.folder,
            samples=settings.samples,
            seed=task.seed,
            concurrency=settings.concurrency,
        )
