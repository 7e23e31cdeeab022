"""The step `datasets`: one training set from episodes and their problems.

* `mid`: plans and rewritten single steps, from the teacher's episodes. `sft`: the teacher's episodes that are right,
  proved and clean. `pairs`: a right and a wrong episode of one question, both the policy's own.
* Inputs: `episodes` (a folder with episodes.jsonl), `problems_NAME` (problems files).
* Rows are in NAME.jsonl, which appears when it is whole; rejections.jsonl has the rest, with the reasons.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from configs.errors import InputError, StorageError, boundary
from configs.schema import Config
from data_synthesis import midtrain, pairs, sft_set
from data_synthesis.ledger import Ledger, Rejection
from inference.records import encode
from inference.types import Episode
from rollout_env.problem import Problem, read_problems
from rollout_env.runner import read_episodes
from scripts.steps.work import Task

REJECTIONS = "rejections.jsonl"

Problems = Mapping[str, Problem]
Row = midtrain.MidRow | Episode | pairs.Pair


class DatasetSettings(Config):
    made: Literal["mid", "sft", "pairs"]
    plans: int = Field(default=1, ge=0)
    """mid: differently worded plans a question."""
    steps: int | None = Field(default=4, ge=0)
    """mid: steps rewritten of each episode. None: all."""
    per_question: int = Field(default=1, ge=1)
    """sft: most episodes of one question; pairs: most pairs of one."""
    limit: int | None = Field(default=None, ge=1)
    """Most questions used, the first ones. None: all."""


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(DatasetSettings)
    listed = [p for path in task.inputs("problems_").values() for p in read_problems(path)][: settings.limit]
    problems = {problem.question.id: problem for problem in listed}
    episodes = [e for e in read_episodes(task.input("episodes")).values() if e.key.question_id in problems]
    if not episodes:
        raise InputError(f"{task.input('episodes')}: no episode answers any of the problems")
    rows, reasons = _collect(task, _MAKERS[settings.made](episodes, problems, settings, task.seed), settings)
    results: dict[str, Any] = {"kept": len(rows), "rejected": dict(reasons)}
    if settings.made == "pairs":
        chosen = [row for row in rows if isinstance(row, pairs.Pair)]
        results["chosen"] = asdict(pairs.lengths([pair.chosen for pair in chosen]))
        results["rejected_side"] = asdict(pairs.lengths([pair.rejected for pair in chosen]))
    return results


def _mid(episodes: Sequence[Episode], problems: Problems, settings: DatasetSettings, seed: int) -> Iterator[Any]:
    config = midtrain.MidtrainConfig(plans=settings.plans, steps=settings.steps, seed=seed)
    yield from midtrain.plan_rows(problems.values(), midtrain.opening_of(episodes[0]), config)
    yield from midtrain.step_rows(episodes, problems, config)


def _sft(episodes: Sequence[Episode], problems: Problems, settings: DatasetSettings, seed: int) -> Iterator[Any]:
    return sft_set.sft_episodes(episodes, problems, sft_set.SftSetConfig(per_question=settings.per_question))


def _pairs(episodes: Sequence[Episode], problems: Problems, settings: DatasetSettings, seed: int) -> Iterator[Any]:
    return pairs.make_pairs(episodes, problems, pairs.PairsConfig(per_question=settings.per_question, seed=seed))


_Maker = Callable[[Sequence[Episode], Problems, DatasetSettings, int], Iterator[Row | Rejection]]
_MAKERS: dict[str, _Maker] = {"mid": _mid, "sft": _sft, "pairs": _pairs}
_KINDS = {"mid": midtrain.KIND, "sft": sft_set.KIND, "pairs": pairs.KIND}


def _collect(
    task: Task, outcomes: Iterable[Row | Rejection], settings: DatasetSettings
) -> tuple[list[Row], Counter[str]]:
    ledger = Ledger(task.folder / REJECTIONS)
    rows: list[Row] = []
    reasons: Counter[str] = Counter()
    for outcome in outcomes:
        if isinstance(outcome, Rejection):
            ledger.reject(outcome)
            reasons[outcome.reason] += 1
        else:
            rows.append(outcome)
        task.meter.update(len(rows))
    _write(task.folder / f"{settings.made}.jsonl", _KINDS[settings.made], rows)
    return rows, reasons


def _write(path: Path, kind: str, rows: Sequence[Row]) -> None:
    part = path.with_name(f".{path.name}.tmp")
    with boundary(StorageError, f"{path}: cannot write"):
        with part.open("wb") as file:
            for row in rows:
                file.write(encode(kind, str(row.key if isinstance(row, Episode) else row.id), row))
        part.replace(path)
