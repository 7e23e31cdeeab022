"""The first verification pass: of several candidates for one question, the one whose evidence holds wins.

A candidate's score is the product of four shares in [0, 1], so a chain that fails in any respect wins nothing by the
others:

    links       supported links of all links stated, each counted once
    answer      1 when a supported link claims it: the answer stands in the claim and in what the quote asserts; else 0
    coverage    named terms of the question (names, quoted words, numbers, codes) found in what supported quotes assert
    connection  supported links that share a name with another supported link or with the question

* Names do not tell a capital from a large city. So a tie above 0 goes to the chain whose quotes hold more of the
  question's other words (`wording`; the claims' own words count for nothing), a tie that is left to the answer that
  more candidates gave, then to the lower sample index.
* An episode that errored is no candidate: it is nobody's answer. One without an answer scores 0 and loses every tie to
  one with an answer.
* Pure. It sees the question, the answers, their evidence and the observations, and nothing else.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from inference.evidence import LinkCheck, check, passages, supported_share, terms, words
from inference.types import Answer, Episode, Question, StopReason
from inference.web.text import content_words

_QUOTED = re.compile(r"[\"“«]([^\"”»]{2,})[\"”»]")


@dataclass(frozen=True, slots=True)
class Score:
    links: float
    answer: float
    coverage: float
    connection: float
    wording: float = 0.0
    """Share of the question's words, names aside, that stand in what supported quotes assert."""

    @property
    def total(self) -> float:
        return self.links * self.answer * self.coverage * self.connection

    @property
    def rank(self) -> tuple[float, float]:
        """The higher the better."""
        return self.total, self.wording if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    episode: Episode
    score: Score
    agreement: int
    """Candidates that gave the same answer, itself included."""


def select(question: Question, episodes: Sequence[Episode]) -> Candidate | None:
    """The winner; None when every episode errored."""
    ranked = rank(question, episodes)
    return ranked[0] if ranked else None


def rank(question: Question, episodes: Sequence[Episode]) -> list[Candidate]:
    """All candidates, best first."""
    alive = [episode for episode in episodes if episode.stop is not StopReason.ERRORED]
    votes = Counter(folded(episode.answer.text) for episode in alive if episode.answer)
    candidates = [
        Candidate(e, score(question, e), votes[folded(e.answer.text)] if e.answer is not None else 0) for e in alive
    ]
    candidates.sort(key=lambda c: c.episode.key.sample)
    return sorted(candidates, key=lambda c: (c.score.rank, c.agreement), reverse=True)


def score(question: Question, episode: Episode) -> Score:
    """How well an episode's evidence holds, against everything it observed."""
    answer = episode.answer
    if answer is None or not answer.evidence:
        return Score(0.0, 0.0, 0.0, 0.0)
    observed = [passage for trajectory in episode.tries for passage in passages(trajectory.nodes)]
    checks = check(dict.fromkeys(answer.evidence), observed)
    supported = [c for c in checks if c.supported]
    asked, stated = question_terms(question.text), [c.stated for c in supported]
    return Score(
        links=supported_share(checks),
        answer=float(any(_claims(c, answer) for c in supported)),
        coverage=_coverage(asked, stated),
        connection=_connection(asked, [terms(c.link.claim) | terms(c.link.quote) for c in supported]),
        wording=_wording(question.text, stated),
    )


def question_terms(text: str) -> frozenset[str]:
    """What a chain for this question has to speak of: its names, numbers and codes, and the words it quotes."""
    quoted = (words(match) for match in _QUOTED.findall(text))
    return terms(text).union(*quoted)


def folded(text: str) -> str:
    """An answer without case, accents, punctuation and articles: equal answers are equal text."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return " ".join(word for word in re.findall(r"\w+", plain) if word not in ("the", "a", "an"))


def _claims(link: LinkCheck, answer: Answer) -> bool:
    wanted = folded(answer.text)
    return bool(wanted) and all(f" {wanted} " in f" {folded(text)} " for text in (link.link.claim, link.stated))


def _coverage(asked: frozenset[str], stated: Sequence[str]) -> float:
    if not asked:
        return 1.0
    spoken = frozenset().union(*map(words, stated))
    return len(asked & spoken) / len(asked)


def _wording(question: str, stated: Sequence[str]) -> float:
    asked = set(content_words(question)).difference(*map(content_words, terms(question)))
    spoken = set(content_words(" ".join(stated)))
    return len(asked & spoken) / len(asked) if asked else 1.0


def _connection(asked: frozenset[str], links: Sequence[frozenset[str]]) -> float:
    if not links:
        return 0.0
    others = [asked.union(*links[:i], *links[i + 1 :]) for i in range(len(links))]
    return sum(bool(link & around) for link, around in zip(links, others, strict=True)) / len(links)
