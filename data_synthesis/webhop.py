"""WebHop: questions grown from their answer, each proved to have exactly one.

A tree is grown root first: the answer is drawn, then facts that hold of it, down to leaves. Depth (how many countries
lie between the first clue and the answer) and breadth (how many clues narrow a country) are parameters. Names on the
path never appear in the question; a leaf is a name one fact away from it or a description that several entities fit.

Every candidate passes `reject_reason`, cheapest check first:
    no_tree           no facts to grow the asked shape from
    answer_leaks      the answer or a name on the path stands in the question
    not_unique        the symbolic solver finds another answer, or none
    open_path         an inner description fits several countries, so the path is not determined
    too_wide          a step has more candidates than a solver is meant to check
    idle_clue         a clue that narrows nothing
    duplicate         the same question was already accepted
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from configs.schema import Config
from data_synthesis.facts import FactTable
from data_synthesis.pages import LIST_MAX
from data_synthesis.tree import Edge, Leaf, Variable, num_edges, solve, to_json
from data_synthesis.writer import write_question
from inference.types import Question
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance

ANSWER_RELATIONS = (
    "capital",
    "highest point",
    "lowest point",
    "national anthem",
    "chief of state",
    "head of government",
    "internet code",
    "independence",
    "area",
    "population",
)
ANCHORS = (
    "capital",
    "highest point",
    "national anthem",
    "anthem author",
    "chief of state",
    "head of government",
    "internet code",
)
"""Relations whose object names one country: a chain of clues starts from one of them."""
FILTERS = ("natural resource", "religion", "language", "independence", "region", "member of")
STEPS = (("borders", False), ("borders", False), ("export partner", True), ("import partner", True))
"""How one country leads to the next: (relation, inverse)."""


class WebHopConfig(Config):
    shapes: dict[str, float] = Field(default={"1c": 0.1, "1o": 0.2, "2c": 0.3, "2o": 0.25, "3c": 0.1, "3o": 0.05})
    """Share of each shape: number of countries on the path, then c (asks the country) or o (asks a fact of it)."""
    filters: int = 1
    """Clues that narrow each country reached through another one."""
    answers: tuple[str, ...] = ANSWER_RELATIONS
    """Relations that may be asked of the last country."""
    anchors: tuple[str, ...] = ANCHORS
    """Relations whose object may be the first clue."""
    clues: tuple[str, ...] = FILTERS
    """Relations that may narrow a country."""
    max_candidates: int = 5
    """Most candidates that one step may list."""
    tries: int = 40
    """Candidate trees drawn for a question before it is given up."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tree with the names its variables stand for, root first."""

    tree: Variable
    answer: str
    path: tuple[str, ...]
    shape: str


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: str
    question: str
    answer: str
    shape: str


def generate(facts: FactTable, config: WebHopConfig, count: int, world: str) -> Iterator[Problem | Rejection]:
    """Problems and rejections as they come: for each of `count` questions a shape is drawn and trees are tried."""
    seen: set[str] = set()
    for number in range(count):
        shape = random.Random(f"shape/{config.seed}/{world}/{number}").choices(
            list(config.shapes), list(config.shapes.values())
        )[0]
        for attempt in range(config.tries):
            rng = random.Random(f"webhop/{config.seed}/{world}/{number}/{attempt}")
            made = _attempt(facts, shape, config, rng, seen)
            if isinstance(made, Rejection):
                yield made
                continue
            candidate, text = made
            seen.add(text)
            yield _problem(candidate, text, world)
            break


def _attempt(
    facts: FactTable, shape: str, config: WebHopConfig, rng: random.Random, seen: set[str]
) -> tuple[Candidate, str] | Rejection:
    candidate = grow(facts, shape, config, rng)
    if candidate is None:
        return Rejection("no_tree", "", "", shape)
    text = write_question(candidate.tree, rng)
    reason = "duplicate" if text in seen else reject_reason(candidate, text, facts, config)
    return (candidate, text) if reason is None else Rejection(reason, text, candidate.answer, shape)


def grow(facts: FactTable, shape: str, config: WebHopConfig, rng: random.Random) -> Candidate | None:
    """A tree of the asked shape around a random answer, or None where the facts do not give one."""
    countries = int(shape[0])
    country = rng.choice(facts.subjects)
    grown = _grow_country(facts, country, countries, config, rng)
    if grown is None:
        return None
    tree, path = grown
    if shape.endswith("c"):
        return Candidate(tree, country, (country, *path), shape)
    asked = [r for r in config.answers if len(facts.objects(country, r)) == 1 and r not in _clues(tree)]
    if not asked:
        return None
    relation = rng.choice(asked)
    answer = facts.objects(country, relation)[0]
    return Candidate(Variable((Edge(relation, tree, inverse=True),)), answer, (answer, country, *path), shape)


def _clues(tree: Variable) -> set[str]:
    return {e.relation for e in tree.edges}


def _grow_country(
    facts: FactTable, country: str, countries: int, config: WebHopConfig, rng: random.Random
) -> tuple[Variable, tuple[str, ...]] | None:
    """(variable for `country`, names of the countries below it)."""
    if countries == 1:
        anchors = [r for r in config.anchors if any(_single(facts, country, r, o) for o in facts.objects(country, r))]
        if not anchors:
            return None
        relation = rng.choice(anchors)
        obj = rng.choice([o for o in facts.objects(country, relation) if _single(facts, country, relation, o)])
        return Variable((Edge(relation, Leaf(obj)),)), ()
    steps = [(r, i) for r, i in STEPS if (facts.holders if i else facts.objects)(country, r)]
    if not steps:
        return None
    relation, inverse = rng.choice(steps)
    before = rng.choice((facts.holders if inverse else facts.objects)(country, relation))
    grown = _grow_country(facts, before, countries - 1, config, rng)
    siblings = set((facts.objects if inverse else facts.holders)(before, relation)) - {country}
    clues = _filters(facts, country, siblings, config, rng)
    if grown is None or clues is None:
        return None
    tree, path = grown
    return Variable((*clues, Edge(relation, tree, inverse))), (before, *path)


def _single(facts: FactTable, country: str, relation: str, obj: str) -> bool:
    return facts.holders(obj, relation) == (country,)


def _filters(
    facts: FactTable, country: str, siblings: set[str], config: WebHopConfig, rng: random.Random
) -> tuple[Edge, ...] | None:
    """`config.filters` clues that hold of `country`, the first one telling it from its siblings where any clue can.

    A clue comes from a list that one sentence states, so that it can be checked by reading one.
    """
    held = {r: facts.objects(country, r) for r in config.clues}
    known = [(r, _leaf(r, o)) for r, objects in held.items() if len(objects) <= LIST_MAX for o in objects]
    rng.shuffle(known)
    telling = [(r, leaf) for r, leaf in known if not any(_has(facts, s, r, leaf) for s in siblings)]
    chosen: dict[str, Leaf] = {}
    for relation, leaf in [*telling[:1], *known]:
        if len(chosen) < config.filters:
            chosen.setdefault(relation, leaf)
    return tuple(Edge(r, leaf) for r, leaf in chosen.items()) if len(chosen) == config.filters else None


def _leaf(relation: str, obj: str) -> Leaf:
    """The clue about `obj`: a year is blurred to its decade."""
    decade = relation == "independence" and len(obj) == 4 and obj.isdigit()
    return Leaf(f"{obj[:3]}0", decade=True) if decade else Leaf(obj)


def _has(facts: FactTable, country: str, relation: str, leaf: Leaf) -> bool:
    return any(leaf.fits(o) for o in facts.objects(country, relation))


def reject_reason(candidate: Candidate, text: str, facts: FactTable, config: WebHopConfig) -> str | None:
    """Why the candidate is no good, or None. Cheapest check first."""
    if any(_names(name, text) for name in (candidate.answer, *candidate.path)):
        return "answer_leaks"
    if solve(candidate.tree, facts) != {candidate.answer}:
        return "not_unique"
    if any(len(solve(v, facts)) != 1 for v in candidate.tree.walk()):
        return "open_path"
    if any(_width(v, facts) > config.max_candidates for v in candidate.tree.walk()):
        return "too_wide"
    if any(_idle(v, facts) for v in candidate.tree.walk()):
        return "idle_clue"
    return None


def _names(name: str, text: str) -> bool:
    """Whether `name` stands in `text` as a word of its own."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(name, at + 1)
    return False


def _width(variable: Variable, facts: FactTable) -> int:
    """Candidates that the step from the country below yields, before any clue narrows them."""
    steps = [e for e in variable.edges if isinstance(e.child, Variable)]
    return max((len(solve(Variable((e,)), facts)) for e in steps), default=1)


def _idle(variable: Variable, facts: FactTable) -> bool:
    """Whether some clue of a narrowed variable can be left out."""
    if len(variable.edges) < 2:
        return False
    fits = len(solve(variable, facts))
    without = (Variable(tuple(e for e in variable.edges if e is not edge)) for edge in variable.edges)
    return any(len(solve(v, facts)) == fits for v in without)


def _problem(candidate: Candidate, text: str, world: str) -> Problem:
    key = hashlib.sha256(f"{world}\n{text}".encode()).hexdigest()[:12]
    hops = num_edges(candidate.tree)
    return Problem(
        question=Question(id=f"{world}-{key}", text=text, meta={"hops": str(hops), "shape": candidate.shape}),
        gold=Gold(answers=(candidate.answer,)),
        provenance=Provenance(
            kind=ProblemKind.WEBHOP,
            world=world,
            tree={**to_json(candidate.tree), "path": list(candidate.path)},
            hops=hops,
            breadth=max(len(v.edges) for v in candidate.tree.walk()),
        ),
    )
