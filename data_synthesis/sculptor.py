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
from inference.web.text import sentences

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
    info: str = ""
    """What the page was to be read for."""

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
        self._last = seen[-1] if seen else None
        self._hits = [
            (n, title, link, observation is self._last)
            for observation in seen
            if observation.tool == SEARCH
            for n, (title, link, _) in enumerate(parse_hits(observation.text), start=1)
        ]
        self._searched = {observation.wanted for observation in seen if observation.tool == SEARCH}
        self._opened = {(o.wanted, o.info): o for o in seen if o.tool == SCRAPE}
        self._used_last = False
        self._begun = False

    def _look_up(
        self, queries: list[str], info: str, titles: list[str], wanted: Callable[[Fact], bool], *, needed: bool = True
    ) -> Turns[list[Read]]:
        if not self._begun and self._last is not None:
            self._thought = ""  # the plan was told in the first turn
        self._begun = True
        older = [read for read in self._older if wanted(read.fact)]
        newest = [read for read in self._newest if wanted(read.fact)]
        if older and not newest and not self._used_last:
            self._thought = ""  # said, and concluded from, when it was read
            return self._distinct(older)
        if older or newest:
            self._used_last = self._used_last or bool(newest)
            self._quote(newest or older)
            return self._distinct(older + newest)
        if not needed and self._silent(info, titles):
            return []
        yield self._ask(queries, info, titles)
        raise AssertionError("a course of one turn is not resumed")

    def _silent(self, info: str, titles: list[str]) -> bool:
        """Whether the page that would tell was opened for `info` and did not."""
        told = {link for _, title, link, _ in self._hits if title in titles}
        silent = [o for (link, asked), o in self._opened.items() if link in told and asked == info and not o.is_error]
        self._used_last = self._used_last or self._last in silent
        return bool(silent)

    def _ask(self, queries: list[str], info: str, titles: list[str]) -> Turn:
        """Open a hit whose title promises it, or search in words not tried before."""
        promising = [hit for hit in self._hits if hit[1] in titles and (hit[2], info) not in self._opened]
        if promising:
            number, title, link, is_newest = promising[-1]
            if not is_newest:
                self._note_miss()
                self._say(f"Back to {title}.")
            else:
                self._say(self._rng.choice(("Open hit {n}.", "Hit {n} may tell.", "I read hit {n}.")).format(n=number))
            return self._turn(SCRAPE, {"url": link, "info_to_extract": info})
        fresh = [query for query in queries if query not in self._searched]
        if not fresh:
            raise Stuck(f"Every way to {info} was tried.")
        self._note_miss()
        self._announce()
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
    return [Read(fact, sentence, source) for sentence in sentences(text) for fact in read_sentence(sentence)]
