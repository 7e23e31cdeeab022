"""The step `verified`: of several candidates a question, the one whose evidence holds.

* Inputs: `problems` (a file), `candidates_I` (folders with episodes.jsonl, together one episode a question and sample).
* Four readings of the same candidates, each a folder with scores.jsonl:

    first      the first `first` candidates of each question: what any other model's evaluation is
    single     all candidates, each an answer of its own (avg@n)
    majority   the answer most candidates gave; a tie goes to the one given first
    verified   the winner by evidence (inference.verify), which sees neither gold nor facts; picked.jsonl has them
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

from configs.schema import Config
from eval.score import QuestionScore, score_episodes, write_scores
from inference.records import encode
from inference.types import Episode, Question, StopReason
from inference.verify import folded, select
from rollout_env.judge import ExactJudge
from rollout_env.problem import Problem, read_problems
from rollout_env.runner import KIND, read_episodes
from scripts.steps.work import Task

PICKED = "picked.jsonl"
READINGS = ("first", "single", "majority", "verified")


class VerifiedSettings(Config):
    samples: int = Field(ge=1)
    """n, candidates a question."""
    first: int = Field(ge=1)
    """Candidates that stand for the model without verification."""


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(VerifiedSettings)
    problems = read_problems(task.input("problems"))
    candidates: dict[str, list[Episode]] = defaultdict(list)
    for folder in task.inputs("candidates_").values():
        for episode in read_episodes(folder).values():
            candidates[episode.key.question_id].append(episode)
    for episodes in candidates.values():
        episodes.sort(key=lambda episode: episode.key.sample)
    problems = [problem for problem in problems if problem.question.id in candidates]
    results: dict[str, Any] = {"questions": len(problems), "samples": settings.samples}
    picked = _picks(problems, candidates, _by_evidence)
    part = task.folder / f".{PICKED}.tmp"
    part.write_bytes(b"".join(encode(KIND, str(episode.key), episode) for episode in picked))
    part.replace(task.folder / PICKED)
    readings = {
        "first": ([e for es in candidates.values() for e in es if e.key.sample < settings.first], settings.first),
        "single": ([e for es in candidates.values() for e in es], settings.samples),
        "majority": (_picks(problems, candidates, majority), 1),
        "verified": (picked, 1),
    }
    for name, (episodes, samples) in readings.items():
        scores = _score(problems, episodes, samples)
        (task.folder / name).mkdir(exist_ok=True)
        write_scores(task.folder / name, scores)
        results[name] = sum(sum(s.points) / len(s.points) for s in scores) / len(scores)
    return results


def majority(question: Question, episodes: Sequence[Episode]) -> Episode | None:
    """The first episode with the answer that most gave; None when none gave one."""
    answers = [folded(e.answer.text) for e in episodes if e.answer is not None and e.stop is not StopReason.ERRORED]
    if not answers:
        return None
    winner, _ = Counter(answers).most_common(1)[0]  # of equals the one met first
    return next(e for e in episodes if e.answer is not None and folded(e.answer.text) == winner)


def _by_evidence(question: Question, episodes: Sequence[Episode]) -> Episode | None:
    candidate = select(question, episodes)
    return None if candidate is None else candidate.episode


def _picks(
    problems: Sequence[Problem],
    candidates: Mapping[str, Sequence[Episode]],
    pick: Callable[[Question, Sequence[Episode]], Episode | None],
) -> list[Episode]:
    """One episode a question; where nothing can be picked, the first."""
    found = ((candidates[p.question.id], pick(p.question, candidates[p.question.id])) for p in problems)
    return [picked if picked is not None else episodes[0] for episodes, picked in found]


def _score(problems: Sequence[Problem], episodes: Sequence[Episode], samples: int) -> list[QuestionScore]:
    return asyncio.run(score_episodes(problems, episodes, ExactJudge(), samples=samples))
