"""What an expert would do next in somebody else's conversation: the rewriting of single steps.

* Given the reasoning tree and the calls and observations so far, whoever made them, `next_turn` reasons straight
  through: what has been read is not asked again, a promising hit already seen is opened, a search that was made is
  not repeated, a miss is noticed and left behind. What is still missing first is the turn; nothing: the final one.
* As with the teacher, every value it states stands in an observation of that conversation.
* It raises `Stuck` where the observations lead nowhere the teacher knows.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data_synthesis.facts import Fact
from data_synthesis.reader import read_sentence
from data_synthesis.teacher import Course, Read, Stuck, Turn, Turns, parse_hits
from data_synthesis.tree import Variable

SEARCH, SCRAPE = "google_search", "scrape_and_extract_info"
_MISSED = ("That does not tell.", "Not what I need.", "That led nowhere.")


@dataclass(frozen=True, slots=True)
class Observation:
    """One call and what came of it."""

    tool: str
    wanted: str
    """The query, or the address."""
    text: str
    is_error: bool = False

    def reads(self) -> list[Read]:
        """The facts it states, each with its sentence and address."""
        if self.is_error:
            return []
        if self.tool == SCRAPE:
            return _facts(self.text, self.wanted)
        return [read for _, link, snippet in parse_hits(self.text) for read in _facts(snippet, link)]


def next_turn(tree: Variable, seen: Sequence[Observation], seed: str) -> Turn:
    """The expert's turn after `seen`. Raises Stuck."""
    course = _Informed(random.Random(seed), seen)
    return next(course.run(tree))


class _Informed(Course):
    """A course that looks into what has been observed before it asks."""

    def __init__(self, rng: random.Random, seen: Sequence[Observation]) -> None:
        super().__init__(rng, detour=0.0)
        self._older = [read for observation in seen[:-1] for read in observation.reads()]
        self._newest = seen[-1].reads() if seen else []
        self._hits = [
            (n, title, link, observation is seen[-1])
            for observation in seen
            if observation.tool == SEARCH
            for n, (title, link, _) in enumerate(parse_hits(observation.text), start=1)
        ]
        self._asked = {observation.wanted for observation in seen}
        self._last = seen[-1] if seen else None
        self._used_last = False
        self._begun = False

    def _look_up(
        self, queries: list[str], info: str, titles: list[str], wanted: Callable[[Fact], bool]
    ) -> Turns[list[Read]]:
        if not self._begun and self._last is not None:
            self._thought = ""  # the plan was told in the first turn
        self._begun = True
        older = [read for read in self._older if wanted(read.fact)]
        newest = [read for read in self._newest if wanted(read.fact)]
        if newest:
            self._used_last = True
            self._quote(newest)
            return self._distinct(older + newest)
        if older and self._used_last:
            self._quote(older)
        elif older:
            self._thought = ""  # said, and concluded from, when it was read
        if older:
            return self._distinct(older)
        yield self._ask(queries, info, titles)
        raise AssertionError("a course of one turn is not resumed")

    def _ask(self, queries: list[str], info: str, titles: list[str]) -> Turn:
        """Open a hit whose title promises it, or search in words not tried before."""
        promising = [hit for hit in self._hits if hit[1] in titles and hit[2] not in self._asked]
        if promising:
            number, title, link, is_newest = promising[-1]
            if not is_newest:
                self._note_miss()
                self._say(f"Back to {title}.")
            else:
                self._say(self._rng.choice(("Open hit {n}.", "Hit {n} may tell.", "I read hit {n}.")).format(n=number))
            return self._turn(SCRAPE, {"url": link, "info_to_extract": info})
        fresh = [query for query in queries if query not in self._asked]
        if not fresh:
            raise Stuck(f"Every way to {info} was tried.")
        self._note_miss()
        return self._turn(SEARCH, {"q": fresh[0]})

    def _note_miss(self) -> None:
        """The newest observation gave nothing for this step: say so before going on."""
        if self._last is not None and not self._used_last:
            remark = self._rng.choice(_MISSED)
            self._thought = f"{remark} {self._thought}".strip()

    @staticmethod
    def _distinct(reads: list[Read]) -> list[Read]:
        first: dict[tuple[str, str], Read] = {}
        for read in reads:
            first.setdefault((read.fact.subject, read.fact.object), read)
        return list(first.values())


def _facts(text: str, source: str) -> list[Read]:
    return [Read(fact, line.strip(), source) for line in text.split("\n") for fact in read_sentence(line)]
