"""Questions from a set of documents: connected pages, the facts they state, a question that needs several of them.

* From a seed page a subgraph is sampled along hyperlinks (either direction); it is connected by construction.
* An `Extractor` reads facts from pages, each with the sentence it rests on. A fact whose sentence does not stand on its
  page word for word is dropped and entered in the ledger (`not_verbatim`).
* A question is grown over the facts of the subgraph alone and must rest on at least `min_documents` pages of it. It
  must have exactly one answer among the facts of the *whole* corpus: the rules of `webhop.reject_reason` apply there.
* A `Problem` carries, beside tree and gold, the addresses of its pages and each fact with its sentence
  (`provenance.tree["facts"]`), so that anybody can check it without this program.
* The same (pages, config) gives the same outcomes in the same order.

Reasons, beside those of `webhop`:
    not_verbatim      a fact whose sentence is not on the page it was read from
    small_subgraph    fewer than `min_documents` pages hang together with the seed page
    few_documents     the question rests on fewer than `min_documents` pages
    unsupported       a fact of the tree is stated on no page of the subgraph
"""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from data_synthesis.facts import Fact, FactTable, table
from data_synthesis.ledger import Rejection
from data_synthesis.reader import read_text
from data_synthesis.tree import Leaf, Variable, num_edges, to_json
from data_synthesis.webhop import Candidate, WebHopConfig, grow, reject_reason
from data_synthesis.writer import write_question
from inference.types import Question
from inference.web.recorded_web import Page, address_key
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance

REASONS = (
    "not_verbatim",
    "small_subgraph",
    "no_tree",
    "duplicate",
    "answer_leaks",
    "not_unique",
    "open_path",
    "too_wide",
    "idle_clue",
    "unsupported",
    "few_documents",
)


_DRAWS = 20  # trees drawn over one subgraph before it is said to hold none of the shape


class CorpusQAConfig(WebHopConfig):
    shapes: dict[str, float] = Field(default={"1o": 0.25, "2c": 0.4, "2o": 0.35})
    """As in webhop; a shape of one fact can rest on one page alone."""
    pages: int = Field(default=40, ge=2)
    """Pages of a subgraph."""
    min_documents: int = Field(default=2, ge=1)
    """Different pages that a question must rest on."""


@dataclass(frozen=True, slots=True)
class Sourced:
    """A fact, the sentence it rests on and where that stands."""

    fact: Fact
    sentence: str
    url: str


class Extractor(Protocol):
    def __call__(self, page: Page) -> Sequence[tuple[Fact, str]]:
        """(fact, sentence) of each fact that `page` states."""
        ...


def read_facts(page: Page) -> Sequence[tuple[Fact, str]]:
    """The extractor of pages in our own sentences: exact, by `data_synthesis.reader`."""
    return [(fact, fact.value) for fact in read_text(page.text)]


class Corpus:
    """Pages, their links in both directions, and every fact they state."""

    def __init__(self, pages: Sequence[Page], extractor: Extractor = read_facts) -> None:
        self.pages = {page.url: page for page in pages}
        self.neighbours = _neighbours(pages)
        self.rejections: list[Rejection] = []
        self.stated: dict[str, list[Sourced]] = {}
        for page in pages:
            self.stated[page.url] = list(self._verbatim(page, extractor(page)))
        self.facts = _table(sourced for stated in self.stated.values() for sourced in stated)

    def _verbatim(self, page: Page, found: Sequence[tuple[Fact, str]]) -> Iterator[Sourced]:
        for fact, sentence in found:
            if sentence.strip() and sentence in page.text:
                yield Sourced(Fact(fact.subject, fact.relation, fact.object), sentence, page.url)
                continue
            key = f"{page.url}#{fact.subject}|{fact.relation}|{fact.object}"
            candidate = {"subject": fact.subject, "relation": fact.relation, "object": fact.object, "page": page.url}
            self.rejections.append(Rejection(key, "not_verbatim", candidate, (sentence,)))

    def subgraph(self, seed: str, size: int, rng: random.Random) -> list[str]:
        """Addresses of at most `size` pages connected with `seed`, in the order they were reached.

        A page that many reached ones are linked with is likely to be next, a hub that links everything is not.
        """
        reached = {seed: None}
        pull: dict[str, int] = dict.fromkeys(self.neighbours[seed], 1)
        while pull and len(reached) < size:
            urls = list(pull)
            weights = [pull[url] ** 2 / len(self.neighbours[url]) for url in urls]
            url = rng.choices(urls, weights)[0]
            del pull[url]
            reached[url] = None
            for near in self.neighbours[url]:
                if near not in reached:
                    pull[near] = pull.get(near, 0) + 1
        return list(reached)


def generate(corpus: Corpus, config: CorpusQAConfig, count: int, world: str) -> Iterator[Problem | Rejection]:
    """Problems and rejections as they come: for each of `count` questions a shape is drawn and subgraphs are tried."""
    yield from corpus.rejections
    accepted: set[str] = set()
    urls = list(corpus.pages)
    for number in range(count):
        rng = random.Random(f"shape/{config.seed}/{world}/{number}")
        shape = rng.choices(list(config.shapes), list(config.shapes.values()))[0]
        for attempt in range(config.tries):
            key = f"{world}/{number}/{attempt}"
            rng = random.Random(f"corpus/{config.seed}/{key}")
            chosen = corpus.subgraph(rng.choice(urls), config.pages, rng)
            if len(chosen) < config.min_documents:
                yield Rejection(key, "small_subgraph", {"seed_page": chosen[0], "pages": len(chosen)})
                continue
            local = [sourced for url in chosen for sourced in corpus.stated[url]]
            outcome = _Try(key, shape, world, config, rng).over(local, corpus.facts, accepted)
            yield outcome
            if isinstance(outcome, Problem):
                accepted.add(outcome.question.text)
                break


@dataclass(frozen=True, slots=True)
class _Try:
    """One attempt at a question of a shape."""

    key: str
    shape: str
    world: str
    config: CorpusQAConfig
    rng: random.Random

    def over(self, local: Sequence[Sourced], facts: FactTable, accepted: set[str]) -> Problem | Rejection:
        """Grown over the facts of a subgraph, proved over those of the corpus."""
        known = _table(local)
        draws = (grow(known, self.shape, self.config, self.rng) for _ in range(_DRAWS if len(known) else 0))
        candidate = next((drawn for drawn in draws if drawn is not None), None)
        if candidate is None:
            return Rejection(self.key, "no_tree", {"shape": self.shape})
        text = write_question(candidate.tree, self.rng)
        described = {"question": text, "answer": candidate.answer, "shape": self.shape}
        reason = "duplicate" if text in accepted else reject_reason(candidate, text, facts, self.config)
        if reason is not None:
            return Rejection(self.key, reason, described)
        support = support_of(candidate, local)
        if support is None:
            return Rejection(self.key, "unsupported", described)
        pages = tuple(dict.fromkeys(sourced.url for sourced in support))
        if len(pages) < self.config.min_documents:
            return Rejection(self.key, "few_documents", described, pages)
        return _problem(candidate, text, self.world, support, pages)


def support_of(candidate: Candidate, local: Sequence[Sourced]) -> list[Sourced] | None:
    """One sentence for each fact the question rests on, leaf-most last; None when one is stated nowhere."""
    stated: dict[tuple[str, str], list[Sourced]] = defaultdict(list)
    for sourced in local:
        stated[sourced.fact.subject, sourced.fact.relation].append(sourced)
    support: list[Sourced] = []
    names = dict(zip(map(id, candidate.tree.walk()), candidate.path, strict=True))
    for variable in candidate.tree.walk():
        for edge in variable.edges:
            here = names[id(variable)]
            child = edge.child.value if isinstance(edge.child, Leaf) else names[id(edge.child)]
            subject = child if edge.inverse else here
            fitting = [
                s
                for s in stated[subject, edge.relation]
                if (s.fact.object == here if edge.inverse else _fits(edge.child, s.fact.object, child))
            ]
            if not fitting:
                return None
            support.append(fitting[0])
    return support


def _fits(child: Variable | Leaf, obj: str, name: str) -> bool:
    return child.fits(obj) if isinstance(child, Leaf) else obj == name


def _neighbours(pages: Sequence[Page]) -> dict[str, tuple[str, ...]]:
    """Linked pages of each page, by address, in the order first met; links that lead nowhere are left out."""
    known = {address_key(page.url): page.url for page in pages}
    linked: dict[str, dict[str, None]] = {page.url: {} for page in pages}
    for page in pages:
        for link in page.links:
            target = known.get(address_key(link))
            if target is not None and target != page.url:
                linked[page.url][target] = None
                linked[target][page.url] = None
    return {url: tuple(targets) for url, targets in linked.items()}


def _table(sourced: Iterator[Sourced] | Sequence[Sourced]) -> FactTable:
    return table(s.fact for s in sourced)


def _problem(
    candidate: Candidate, text: str, world: str, support: Sequence[Sourced], pages: tuple[str, ...]
) -> Problem:
    key = hashlib.sha256(f"{world}\n{text}".encode()).hexdigest()[:12]
    hops = num_edges(candidate.tree)
    facts: list[Mapping[str, str]] = [
        {
            "subject": s.fact.subject,
            "relation": s.fact.relation,
            "object": s.fact.object,
            "sentence": s.sentence,
            "page": s.url,
        }
        for s in support
    ]
    return Problem(
        question=Question(id=f"{world}-{key}", text=text, meta={"hops": str(hops), "shape": candidate.shape}),
        gold=Gold(answers=(candidate.answer,)),
        provenance=Provenance(
            kind=ProblemKind.CORPUS,
            world=world,
            tree={**to_json(candidate.tree), "path": list(candidate.path), "facts": facts},
            hops=hops,
            breadth=max(len(v.edges) for v in candidate.tree.walk()),
            evidence=pages,
        ),
    )
