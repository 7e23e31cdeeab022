"""Training and held-out questions that share no answer and no way to one.

* `split` never leaves in training a question that touches a held-out one: see `touches`. What has to go for that is
  dropped and counted, never moved over.
* A *clue path* is the chain of facts from a leaf of the reasoning tree up to the answer. A held-out question's clue
  paths occur in no training question, neither as a whole path nor as the lower part of a longer one. Its answer is
  no training question's answer and stands in none as a leaf. Hubs, the entities between leaf and answer, may be shared.
* Answers are compared as the judge compares them, and across worlds.
* The same (problems, seed) gives the same split, whatever the order of the problems.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from configs.errors import InputError
from data_synthesis.tree import Leaf, Variable, from_json
from rollout_env.judge import normalise
from rollout_env.problem import Problem

TRAIN, HELDOUT = "train", "heldout"

SYMMETRIC = frozenset({"borders"})
"""Relations whose two directions are one fact."""

Path = tuple[tuple[str, str, str], ...]
"""(subject, relation, object) of each fact, from the leaf up."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What of a question must not come back on the other side."""

    answers: frozenset[str]
    """Gold answers, normalised."""
    leaves: frozenset[str]
    """Names its text gives, normalised."""
    paths: frozenset[Path]
    """Every clue path, whole."""
    parts: frozenset[Path]
    """Every clue path and every lower part of one."""


@dataclass(frozen=True, slots=True)
class Split:
    train: tuple[Problem, ...]
    heldout: tuple[Problem, ...]
    dropped: tuple[tuple[Problem, str], ...]
    """Training questions that touched a held-out one, with the reason: answer, leaf or path."""


def split(problems: Sequence[Problem], heldout: int, seed: int = 0) -> Split:
    """At least `heldout` questions held out, whole answers at a time. Raises InputError when there are too few."""
    ordered = sorted(problems, key=lambda p: p.question.id)
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in ordered:
        groups[normalise(problem.gold.canonical)].append(problem)
    held: list[Problem] = []
    for answer in sorted(groups, key=lambda a: _draw(seed, a)):
        if len(held) >= heldout:
            break
        held += groups[answer]
    if len(held) < heldout or len(held) == len(ordered):
        raise InputError(f"{len(ordered)} questions are too few to hold out {heldout}")
    held_ids = {p.question.id for p in held}
    return separate([p for p in ordered if p.question.id not in held_ids], held)


def separate(train: Iterable[Problem], heldout: Iterable[Problem]) -> Split:
    """Drop from `train` what touches `heldout`; mark both with their split."""
    held = list(heldout)
    traces = [trace(p) for p in held]
    sealed = Trace(
        frozenset().union(*(t.answers for t in traces)),
        frozenset().union(*(t.leaves for t in traces)),
        frozenset().union(*(t.paths for t in traces)),
        frozenset().union(*(t.parts for t in traces)),
    )
    kept, dropped = [], []
    for problem in train:
        reason = touches(trace(problem), sealed)
        if reason is None:
            kept.append(_marked(problem, TRAIN))
        else:
            dropped.append((problem, reason))
    return Split(tuple(kept), tuple(_marked(p, HELDOUT) for p in held), tuple(dropped))


def touches(training: Trace, heldout: Trace) -> str | None:
    """What of `heldout` occurs in `training`: "answer", "leaf", "path", or None."""
    if training.answers & heldout.answers:
        return "answer"
    if training.leaves & heldout.answers:
        return "leaf"
    if training.parts & heldout.paths:
        return "path"
    return None


def trace(problem: Problem) -> Trace:
    """Raises InputError when the problem carries no reasoning tree with the names along it."""
    answers = frozenset(normalise(a) for a in problem.gold.answers)
    tree = problem.provenance.tree
    if not isinstance(tree, dict) or "edges" not in tree or "path" not in tree:
        raise InputError(f"question {problem.question.id!r} carries no reasoning tree: it cannot be split by clue path")
    paths, leaves = clue_paths(from_json(tree), tree["path"])
    parts = frozenset(path[: i + 1] for path in paths for i in range(len(path)))
    return Trace(answers, frozenset(normalise(leaf) for leaf in leaves), frozenset(paths), parts)


def clue_paths(root: Variable, names: Sequence[str]) -> tuple[list[Path], list[str]]:
    """(clue paths, leaf words); `names` are those of the variables in the order of `root.walk()`."""
    variables = list(root.walk())
    if len(variables) != len(names):
        raise InputError(f"a reasoning tree of {len(variables)} unknowns comes with {len(names)} names")
    name_of = {id(variable): name for variable, name in zip(variables, names, strict=True)}
    paths: list[Path] = []
    leaves: list[str] = []

    def climb(variable: Variable, above: Path) -> None:
        name = name_of[id(variable)]
        for edge in variable.edges:
            child = edge.child.text if isinstance(edge.child, Leaf) else name_of[id(edge.child)]
            subject, obj = (child, name) if edge.inverse else (name, child)
            if edge.relation in SYMMETRIC:
                subject, obj = sorted((subject, obj))
            path = ((subject, edge.relation, obj), *above)
            if isinstance(edge.child, Leaf):
                paths.append(path)
                leaves.append(child)
            else:
                climb(edge.child, path)

    climb(root, ())
    return paths, leaves


def _draw(seed: int, answer: str) -> str:
    return hashlib.sha256(f"split/{seed}/{answer}".encode()).hexdigest()


def _marked(problem: Problem, name: str) -> Problem:
    return replace(problem, provenance=replace(problem.provenance, split=name))
