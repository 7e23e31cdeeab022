"""Problems: a question, its gold answers and where it comes from.

* An agent is handed `problem.question` and nothing else; no field of `Question` leads to `Gold`.
* `write_problems` is atomic: a reader sees the old file or the whole new one.
* `read_problems` returns the rows in file order, or raises `InputError` naming file and line. Question ids are unique
  within a file; every problem has at least one gold answer that is not blank.
* One record of `inference.records` a line, `{"schema": 1, "kind": "problem", "key": <question id>, "data": <Problem>}`.
  Unlike a log it has no torn last line: a file that ends without a newline is read to its end.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from configs.errors import InputError, StorageError
from inference.records import decode, encode
from inference.types import Question

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
    """Facts the answer rests on."""
    breadth: int | None = None
    """Most clues that meet at one entity."""
    split: str = ""
    """Free name of the part it belongs to: train, heldout, ..."""
    evidence: tuple[str, ...] = ()
    """Addresses of the pages its facts stand on."""


@dataclass(frozen=True, slots=True)
class Problem:
    question: Question
    gold: Gold
    provenance: Provenance = field(default_factory=lambda: Provenance(ProblemKind.BENCHMARK))


def write_problems(path: Path, problems: Iterable[Problem]) -> int:
    """Replace `path` with these problems; returns how many. Raises StorageError, InputError on a duplicate id."""
    seen: set[str] = set()
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            for problem in problems:
                _admit(problem, seen, str(path))
                file.write(encode(KIND, problem.question.id, problem))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot write problems: {error.strerror or error}") from error
    return len(seen)


def read_problems(path: Path) -> list[Problem]:
    """Every problem of the file, in order. Raises InputError naming file and line."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot read problems: {error.strerror or error}") from error
    seen: set[str] = set()
    problems = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            problem = decode(line, Problem, f"{path}:{number}")
            _admit(problem, seen, f"{path}:{number}")
            problems.append(problem)
    if not problems:
        raise InputError(f"{path}: holds no problems")
    return problems


def _admit(problem: Problem, seen: set[str], where: str) -> None:
    name = problem.question.id
    if name in seen:
        raise InputError(f"{where}: question id {name!r} occurs twice")
    if not problem.gold.answers or not all(answer.strip() for answer in problem.gold.answers):
        raise InputError(f"{where}: question {name!r} has no gold answer, or a blank one")
    seen.add(name)
