"""Problems: a question, its gold answers and where it comes from.

* An agent is handed `problem.question` and nothing else; no field of `Question` leads to `Gold`.
* `write_problems` is atomic: a reader sees the old file or the whole new one.
* `read_problems` returns the rows in file order, or raises `InputError` naming file and line. Question ids are unique
  within a file; every problem has at least one gold answer that is not blank.
* One JSON object a line, `{"schema": 1, "kind": "problem", "key": <question id>, "data": <Problem>}`: the same lines
  that `inference.records.append_record` writes.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from configs.errors import InputError, StorageError
from inference.types import Question

SCHEMA = 1
KIND = "problem"


@dataclass(frozen=True, slots=True)
class Gold:
    answers: tuple[str, ...]
    """Accepted answers; the first is the canonical one, the others are its aliases."""

    @property
    def canonical(self) -> str:
        return self.answers[0]


class ProblemKind(StrEnum):
    WEBHOP = "webhop"
    """Grown as a tree from its answer over facts."""
    CORPUS = "corpus"
    """Written from a connected set of documents."""
    BENCHMARK = "benchmark"
    """From somebody's published benchmark."""


@dataclass(frozen=True, slots=True)
class Provenance:
    kind: ProblemKind
    world: str = ""
    """Name of the corpus the question was made over."""
    tree: Any = None
    """The reasoning tree as plain JSON; None where there is none. It gives the answer away: no agent may see it."""
    hops: int | None = None
    """Facts on the longest path from a leaf to the answer."""
    breadth: int | None = None
    """Clues that meet at the answer."""
    split: str = ""
    """Free name of the part it belongs to: train, heldout, ..."""
    evidence: tuple[str, ...] = ()
    """Addresses of the pages its facts stand on."""


@dataclass(frozen=True, slots=True)
class Problem:
    question: Question
    gold: Gold
    provenance: Provenance = field(default_factory=lambda: Provenance(ProblemKind.BENCHMARK))


_PROBLEM = TypeAdapter(Problem)


def write_problems(path: Path, problems: Iterable[Problem]) -> int:
    """Replace `path` with these problems; returns how many. Raises StorageError, InputError on a duplicate id."""
    seen: set[str] = set()
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            for problem in problems:
                _admit(problem, seen, str(path))
                file.write(_line(problem) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot write problems: {error.strerror or error}") from error
    return len(seen)


def read_problems(path: Path) -> list[Problem]:
    """Every problem of the file, in order. Raises InputError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read problems: {error}") from error
    seen: set[str] = set()
    problems = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        problem = _parse(line, f"{path}:{number}")
        _admit(problem, seen, f"{path}:{number}")
        problems.append(problem)
    if not problems:
        raise InputError(f"{path}: holds no problems")
    return problems


def _line(problem: Problem) -> str:
    data = _PROBLEM.dump_python(problem, mode="json")
    row = {"schema": SCHEMA, "kind": KIND, "key": problem.question.id, "data": data}
    # A lone surrogate from a page cannot be encoded; it is replaced here rather than killing the writer.
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")


def _parse(line: str, where: str) -> Problem:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not a JSON object: {error.msg} at column {error.colno}") from error
    if not isinstance(row, dict) or row.get("kind") != KIND or "data" not in row:
        raise InputError(
            f'{where}: not a problem: expected an object with "schema", "kind": "problem", "key" and "data"'
        )
    if row.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema {row.get('schema')!r} is not one this version reads ({SCHEMA})")
    try:
        return _PROBLEM.validate_python(row["data"])
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: {place}: {first['msg']}") from error


def _admit(problem: Problem, seen: set[str], where: str) -> None:
    name = problem.question.id
    if name in seen:
        raise InputError(f"{where}: question id {name!r} occurs twice")
    if not problem.gold.answers or not all(answer.strip() for answer in problem.gold.answers):
        raise InputError(f"{where}: question {name!r} has no gold answer, or a blank one")
    seen.add(name)
