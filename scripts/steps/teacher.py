"""The step `teacher`: the symbolic teacher solves every question through the real agent and tools.

* Inputs: `questions` (the step's folder), `corpus_NAME`, `tokenizer` (a tokenizer.json: turns and contexts are measured
  in the tokens of the model that is to learn from them).
* A question is kept when the teacher answers it right within the agent's limits; of a set with a limit, the first so
  many. SET.jsonl holds the problems that are left, episodes.jsonl every episode.
* It sees pages only: the reasoning tree says where to look, what is stated comes from observations.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from configs.errors import InputError
from configs.schema import Config
from data_synthesis.teacher import Teacher
from data_synthesis.tree import from_json
from inference.agent import Agent, AgentConfig
from inference.journal import Journal
from inference.llm.protocol import Completion, Prompt, Sampling
from inference.llm.render import ChatMLRenderer
from inference.tools.config import WebLimits
from inference.tools.protocol import Tool
from inference.types import Episode, EpisodeKey, Finish, Question, StopReason, Usage
from rollout_env.judge import match
from rollout_env.problem import Problem, read_problems, write_problems
from scripts.steps.episodes import open_webs, roll_out
from scripts.steps.work import Task


class TeacherSettings(Config):
    agent: AgentConfig
    web: WebLimits
    sets: dict[str, int | None]
    """Set -> most problems kept; None: all."""
    detour: float = Field(default=0.08, ge=0, le=1)
    """Chance of a search that goes astray first."""
    concurrency: int = Field(default=16, ge=1)


class MeasuredTeacher:
    """The teacher of one question under a model's limits: prompts are counted, a turn over its limit counts as cut."""

    def __init__(self, teacher: Teacher, renderer: ChatMLRenderer) -> None:
        self._teacher = teacher
        self._renderer = renderer

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        completion = await self._teacher.complete(prompt, sampling)
        tokens = len(self._renderer.encode(completion.text)) + 1
        finish = Finish.STOP if tokens <= sampling.max_tokens else Finish.LENGTH
        return Completion(completion.text, finish=finish, usage=Usage(self.count(prompt), 0, tokens))

    def count(self, prompt: Prompt) -> int:
        return self._renderer.count_prompt(prompt.nodes, prompt.limits)


class TeacherAgent:
    """The agent, with the teacher in the model's place."""

    def __init__(
        self,
        settings: TeacherSettings,
        tools: Mapping[str, Sequence[Tool]],
        problems: Sequence[Problem],
        renderer: ChatMLRenderer,
    ) -> None:
        self._settings = settings
        self._tools = tools
        self._problems = {problem.question.id: problem for problem in problems}
        self._renderer = renderer

    async def run(self, question: Question, key: EpisodeKey, journal: Journal | None = None) -> Episode:
        provenance = self._problems[question.id].provenance
        teacher = Teacher(from_json(provenance.tree), str(key), self._settings.detour)
        tools = self._tools[provenance.world]
        agent = Agent(self._settings.agent, MeasuredTeacher(teacher, self._renderer), tools)
        return await agent.run(question, key, journal)


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(TeacherSettings)
    sets = {name: read_problems(task.input("questions") / f"{name}.jsonl") for name in settings.sets}
    episodes = asyncio.run(_solve(task, settings, [problem for problems in sets.values() for problem in problems]))
    by_question = {episode.key.question_id: episode for episode in episodes}
    return {name: _keep(task, name, sets[name], by_question, limit) for name, limit in settings.sets.items()}


async def _solve(task: Task, settings: TeacherSettings, problems: Sequence[Problem]) -> list[Episode]:
    renderer = ChatMLRenderer(task.input("tokenizer"))
    async with open_webs(task.inputs("corpus_"), settings.web) as tools:
        agent = TeacherAgent(settings, tools, problems, renderer)
        return await roll_out(
            problems, agent, task.meter, task.folder, samples=1, seed=task.seed, concurrency=settings.concurrency
        )


def _keep(
    task: Task, name: str, problems: Sequence[Problem], episodes: Mapping[str, Episode], limit: int | None
) -> dict[str, Any]:
    """Write the problems that are left; the set's funnel."""
    faults = {problem.question.id: _fault(problem, episodes[problem.question.id]) for problem in problems}
    solved = [problem for problem in problems if faults[problem.question.id] is None]
    if not solved:
        raise InputError(f"set {name}: the teacher solves none of its {len(problems)} questions")
    kept = solved[:limit]
    write_problems(task.folder / f"{name}.jsonl", kept)
    rejected = Counter(fault for fault in faults.values() if fault is not None)
    if len(kept) < len(solved):
        rejected["more_than_wanted"] = len(solved) - len(kept)
    turns = [episodes[problem.question.id].turns for problem in kept]
    hops = Counter(str(problem.provenance.hops) for problem in kept)
    return {
        "kept": len(kept),
        "rejected": dict(rejected),
        "turns": sum(turns) / len(turns) if turns else None,
        "hops": dict(sorted(hops.items())),
    }


def _fault(problem: Problem, episode: Episode) -> str | None:
    """Why the question is not kept."""
    if episode.stop is StopReason.FORMAT:  # it says so and states no answer
        return "teacher_stuck"
    if episode.stop is not StopReason.ANSWERED or episode.answer is None:
        return f"teacher_{episode.stop.value}"
    return None if match(episode.answer.text, problem.gold) is not None else "teacher_wrong"
