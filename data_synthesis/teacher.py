"""The symbolic teacher: solves a question through the real loop and the real tools, in words.

It is an `LLM` that knows the question's reasoning tree and nothing else: every value it states it has read in an
observation of this very conversation, and each thought quotes the sentence it rests on, with its address, before it
concludes. Candidates of a clue are checked one by one; wording varies; with `detour` probability a search goes astray
first and the thought says so. Where the pages do not give what a step needs, it stops without an answer, and the
episode is not used.

Stateless: each call replays its own reasoning over the conversation so far, so a resumed run goes on as it would have.
"""

import json
import random
import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from data_synthesis.facts import Fact
from data_synthesis.pages import TITLES
from data_synthesis.reader import read_sentence
from data_synthesis.relations import RELATIONS, Relation
from data_synthesis.tree import Edge, Leaf, Variable
from inference.llm.protocol import Completion, Prompt, Sampling
from inference.types import Role
from inference.web.text import sentences

_HIT = re.compile(r"^\[\d+\] (?P<title>.+) \| (?P<link>\S+)$")
_MAX_CANDIDATES = 6
_AGAIN = ("None of these tells. Again.", "Not there. Other words.")

T = TypeVar("T")

Turns = Generator["Turn", str, T]


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing to do: the call made, or None for the final turn."""

    thought: str
    tool: str | None = None
    arguments: dict[str, str] = field(default_factory=dict)
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A fact as it was read: the sentence and the address it stands at."""

    fact: Fact
    quote: str
    source: str


class Stuck(Exception):
    """The pages read do not give what a step needs."""


class Teacher:
    """An LLM for one question. `seed` varies the wording; `detour` is the chance of a search that goes astray."""

    def __init__(self, tree: Variable, seed: str, detour: float = 0.05) -> None:
        self._tree = tree
        self._seed = seed
        self._detour = detour

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        observations = [n.text for n in prompt.nodes if n.role is Role.TOOL]
        turn = turn_after(self._tree, observations, self._seed, self._detour)
        return Completion(text=render_turn(turn))


def turn_after(tree: Variable, observations: Iterable[str], seed: str, detour: float) -> Turn:
    """The teacher's next turn when `observations` are what its calls gave so far."""
    course = Course(random.Random(seed), detour).run(tree)
    try:
        turn = next(course)
        for observation in observations:
            turn = course.send(observation)
    except Stuck as stuck:
        return Turn(thought=f"{stuck} I cannot go on.")
    return turn


def render_turn(turn: Turn) -> str:
    """The text of a turn, in the form the agent loop reads."""
    thought = f"<think>{turn.thought}</think>\n"
    if turn.tool is None:
        return thought + (turn.answer or "I do not know.")
    call = json.dumps({"name": turn.tool, "arguments": turn.arguments}, ensure_ascii=False)
    return f"{thought}<tool_call>\n{call}\n</tool_call>"


def plan_of(tree: Variable) -> list[str]:
    """The steps that solve `tree`, in order, each a short imperative."""
    steps: list[str] = []
    if len(tree.edges) == 1 and tree.edges[0].inverse and isinstance(tree.edges[0].child, Variable):
        steps += plan_of(tree.edges[0].child)
        return [*steps, f"tell its {tree.edges[0].relation}"]
    start, rest = _start(tree)
    if isinstance(start.child, Variable):
        steps += [*plan_of(start.child), f"list its {RELATIONS[start.relation].query}"]
    elif start.relation in _UNIQUE:
        steps.append(f"find the country {RELATIONS[start.relation].clause.format(o=start.child.text)}")
    else:
        steps.append(f"list the {RELATIONS[start.relation].query} of {start.child.text}")
    return steps + [f"keep the one {RELATIONS[e.relation].clause.format(o=_leaf(e).text)}" for e in rest]


_UNIQUE = frozenset(r.name for r in RELATIONS.values() if r.lookup == "unique")


def _leaf(edge: Edge) -> Leaf:
    if not isinstance(edge.child, Leaf):
        raise Stuck(f"Two descriptions at once: {edge.relation}.")
    return edge.child


def _start(variable: Variable) -> tuple[Edge, list[Edge]]:
    """The edge that yields candidates, and those that only check them."""

    def rank(edge: Edge) -> int:
        if isinstance(edge.child, Variable):
            return 0
        if edge.relation in _UNIQUE:
            return 1
        return 2 if edge.inverse or RELATIONS[edge.relation].lookup == "listed" else 9

    ordered = sorted(variable.edges, key=rank)
    if rank(ordered[0]) == 9:
        raise Stuck("No clue to start from.")
    return ordered[0], ordered[1:]


class Course:
    """The reasoning over one question: yields turns, is sent observations."""

    def __init__(self, rng: random.Random, detour: float) -> None:
        self._rng = rng
        self._detour = detour
        self._held: list[Read] = []
        self._todo: list[str] = []
        self._plan = ""
        self._thought = ""

    def run(self, tree: Variable) -> Turns[None]:
        self._todo = plan_of(tree)
        self._plan = self._rng.choice(("Plan: ", "Steps: ", "To do: ")) + "; ".join(self._todo) + "."
        self._thought = self._plan
        root_edge = tree.edges[0]
        if len(tree.edges) == 1 and root_edge.inverse and isinstance(root_edge.child, Variable):
            country = yield from self._resolve(root_edge.child)
            reads = yield from self._objects(country, RELATIONS[root_edge.relation])
            self._keep(reads[0])
            answer = reads[0].fact.object
            self._say(f"So the answer is {answer}.")
        else:
            answer = yield from self._resolve(tree)
        yield self._final(answer)

    # -- steps ------------------------------------------------------------------------------------------------------

    def _resolve(self, variable: Variable) -> Turns[str]:
        """The country that fits `variable`."""
        start, checks = _start(variable)
        candidates = yield from self._candidates(start)
        if not checks and len(candidates) > 1:
            raise Stuck("Several countries fit.")
        for country, read in candidates[:_MAX_CANDIDATES]:
            held = len(self._held)
            self._keep(read)
            passed = yield from self._check_all(country, checks)
            if passed:
                del self._todo[: len(checks)]
                self._say(self._rng.choice(("So it is {c}.", "It is {c}.", "That makes it {c}.")).format(c=country))
                return country
            del self._held[held:]
        raise Stuck("No candidate fits.")

    def _candidates(self, start: Edge) -> Turns[list[tuple[str, Read]]]:
        relation = RELATIONS[start.relation]
        if isinstance(start.child, Variable):
            known = yield from self._resolve(start.child)
            reads = yield from self._objects(known, relation)
            del self._todo[:1]
            return self._listed(reads)
        leaf = start.child.text
        if start.inverse or relation.name == "borders":
            reads = yield from self._objects(leaf, relation)
            del self._todo[:1]
            return self._listed(reads)
        reads = yield from self._subjects(leaf, relation)
        del self._todo[:1]
        return [(r.fact.subject, r) for r in reads]

    def _listed(self, reads: list[Read]) -> list[tuple[str, Read]]:
        if len(reads) > 1:
            self._say(self._rng.choice(("Check each.", "I check them one by one.", "Which one fits?")))
        return [(r.fact.object, r) for r in reads]

    def _check_all(self, country: str, checks: list[Edge]) -> Turns[bool]:
        for edge in checks:
            leaf, relation = _leaf(edge), RELATIONS[edge.relation]
            reads = yield from self._objects(country, relation, needed=False)
            fitting = [r for r in reads if leaf.fits(r.fact.object)]
            if not fitting:
                self._say(self._rng.choice(("Not {o}.", "That is not {o}.", "{o} is not there.")).format(o=leaf.text))
                return False
            self._keep(fitting[0])
            self._say(self._rng.choice(("{c} fits.", "{c} has it.", "Good, {c}.")).format(c=country))
        return True

    # -- reading ----------------------------------------------------------------------------------------------------

    def _objects(self, subject: str, relation: Relation, *, needed: bool = True) -> Turns[list[Read]]:
        """What `subject` has under `relation`, as read; nothing where the right page is silent and it is not needed."""
        titles = [t.format(s=subject) for t in TITLES[relation.topic]]
        queries = [self._words(subject, relation.query), *self._rng.sample(titles, len(titles))]
        info = relation.query
        return (
            yield from self._look_up(
                queries, info, titles, lambda f: f.subject == subject and f.relation == relation.name, needed=needed
            )
        )

    def _subjects(self, obj: str, relation: Relation) -> Turns[list[Read]]:
        """Who has `obj` under `relation`, as read."""
        queries = [self._words(obj, relation.query), obj]
        info = relation.query
        return (
            yield from self._look_up(queries, info, [obj], lambda f: f.object == obj and f.relation == relation.name)
        )

    def _look_up(
        self, queries: list[str], info: str, titles: list[str], wanted: Callable[[Fact], bool], *, needed: bool = True
    ) -> Turns[list[Read]]:
        """Search, and open the page whose title promises it unless a snippet already states it in full."""
        if self._rng.random() < self._detour:
            yield from self._stray(queries[0])
        for i, query in enumerate(queries):
            if i:
                self._say(self._rng.choice(_AGAIN))
            self._announce()
            text = yield self._turn("google_search", {"q": query})
            hits = parse_hits(text)
            reads = [r for title, link, snippet in hits for r in _facts(snippet, link) if wanted(r.fact)]
            if reads:
                return self._quote(reads)
            promising = [(n, link) for n, (title, link, _) in enumerate(hits, start=1) if title in titles]
            if promising:
                reads = yield from self._open(*promising[0], info, wanted)
                if needed and not reads:
                    raise Stuck(f"That page does not tell {info}.")
                return self._quote(reads)
        raise Stuck(f"No page on {info} is among the hits.")

    def _open(self, number: int, link: str, info: str, wanted: Callable[[Fact], bool]) -> Turns[list[Read]]:
        self._say(self._rng.choice(("Open hit {n}.", "Hit {n} may tell.", "I read hit {n}.")).format(n=number))
        text = yield self._turn("scrape_and_extract_info", {"url": link, "info_to_extract": info})
        return [r for r in _facts(text, link) if wanted(r.fact)]

    def _stray(self, query: str) -> Turns[None]:
        """A search that misses, noticed."""
        words = query.split(" ")
        self._say(self._rng.choice(("Let me try {q}.", "First a look at {q}.")).format(q=words[0]))
        yield self._turn("google_search", {"q": words[0]})
        self._say(self._rng.choice(("That does not tell.", "Not what I need.", "Too vague.")))

    def _words(self, name: str, words: str) -> str:
        return self._rng.choice((f"{words} {name}", f"{name} {words}", f"{words} of {name}"))

    # -- words ------------------------------------------------------------------------------------------------------

    def _say(self, words: str) -> None:
        self._thought = f"{self._thought} {words}".strip()

    def _announce(self) -> None:
        """Say what is left to do, so that the next step follows from the last thought; the plan itself says it too."""
        if self._plan not in self._thought:
            self._say(f"Next: {'; '.join(self._todo)}.")

    def _quote(self, reads: list[Read]) -> list[Read]:
        """Say the sentences read; the first reading of each fact stands for it."""
        first: dict[tuple[str, str], Read] = {}
        for read in reads:
            first.setdefault((read.fact.subject, read.fact.object), read)
        reads = list(first.values())
        for quote, source in dict.fromkeys((r.quote, r.source) for r in reads):
            self._say(f'"{quote}" ({source})')
        return reads

    def _keep(self, read: Read) -> None:
        self._held.append(read)

    def _turn(self, tool: str, arguments: dict[str, str]) -> Turn:
        turn = Turn(self._thought, tool, arguments)
        self._thought = ""
        return turn

    def _final(self, answer: str) -> Turn:
        lines = [
            f'- {RELATIONS[r.fact.relation].claim.format(s=r.fact.subject, o=r.fact.object)} | "{r.quote}" | {r.source}'
            for r in dict.fromkeys(self._held)
        ]
        return Turn(self._thought, answer="\n".join([*lines, rf"\boxed{{{answer}}}"]))


def parse_hits(text: str) -> list[tuple[str, str, str]]:
    """(title, link, snippet) of each hit in a search result."""
    hits: list[tuple[str, str, str]] = []
    lines = text.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        match = _HIT.match(line)
        if match:
            hits.append((match["title"], match["link"], following))
    return hits


def _facts(text: str, source: str) -> list[Read]:
    return [Read(f, sentence, source) for sentence in sentences(text) for f in read_sentence(sentence)]
