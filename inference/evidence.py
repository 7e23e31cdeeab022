"""Checking a chain of evidence against what was observed.

* A link is supported when its quote stands word for word (white space aside) in a result of a call that did not fail,
  read at the link's own source, and every name and number of its claim stands in what that quote asserts
  (`inference.assertion`: "the former capital was X" bears out no present capital).
* The source of a result is the `url` argument of its call. The result of a search speaks for each hit's link alone:
  a hit's title and snippet are evidence from that link and no other.
* Pure: it sees the links and the conversation, nothing else.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from inference.assertion import asserted
from inference.types import Evidence, Node, Role, ToolCall


class LinkStatus(StrEnum):
    SUPPORTED = "supported"
    QUOTE_NOT_FOUND = "quote_not_found"
    """The quote stands in no observation."""
    WRONG_SOURCE = "wrong_source"
    """The quote was observed, but not at the link's source."""
    CLAIM_NOT_IN_QUOTE = "claim_not_in_quote"
    """The quote is genuine, but a name or number of the claim is not in it."""
    QUOTE_SAYS_OTHERWISE = "quote_says_otherwise"
    """The quote is genuine and has them, but only where it denies them or sets them in the past."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Text read at one address."""

    source: str
    text: str
    """White space normalised."""
    node: int
    """Index of the tool node it stands in."""


@dataclass(frozen=True, slots=True)
class LinkCheck:
    link: Evidence
    status: LinkStatus
    node: int | None = None
    """With `supported`: the tool node the quote stands in."""
    stated: str = ""
    """With `supported`: what the quote asserts, white space normalised."""

    @property
    def supported(self) -> bool:
        return self.status is LinkStatus.SUPPORTED


_HIT = re.compile(r"^\[\d+\] (?P<title>.*) \| (?P<link>\S+)$")
_TERM = re.compile(r"\.[A-Za-z]{2,}\b|\d[\d.,:/-]*\d|\d|[^\W\d_][\w'’-]*")

GRAMMAR = frozenset(
    "a an the this that these those it its he she they his her their in on at of by for from to with as and or but if "
    "is are was were be been has have had do does did not no which what who whom whose when where why how many much "
    "name give find tell answer question one two three each both all any some there here also than then "
    "among between according only same other another".split()
)
"""Words that are no names even where a capital opens a sentence."""


def passages(nodes: Sequence[Node]) -> tuple[Passage, ...]:
    """Everything observed in a conversation, by source. Failed calls and results without an address give none."""
    calls = {call.id: call for node in nodes for call in node.calls}
    found: list[Passage] = []
    for i, node in enumerate(nodes):
        if node.role is Role.TOOL and not node.is_error and node.call_id in calls:
            found.extend(_of_result(calls[node.call_id], node.text, i))
    return tuple(found)


def check(links: Iterable[Evidence], observed: Sequence[Passage]) -> tuple[LinkCheck, ...]:
    """One status a link, in order."""
    return tuple(_check(link, observed) for link in links)


def supported_share(checks: Sequence[LinkCheck]) -> float:
    """Supported links as a share of all; 0 for an empty chain, which supports nothing."""
    return sum(c.supported for c in checks) / len(checks) if checks else 0.0


def terms(text: str) -> frozenset[str]:
    """Names, numbers and codes of a text, folded for comparison: capitalised words that are not grammar, numbers
    without digit grouping, codes such as `.fj`.
    """
    return frozenset(
        folded
        for word in _TERM.findall(text)
        if (folded := _fold(word)) not in GRAMMAR and (word[0].isupper() or not word[0].isalpha())
    )


def words(text: str) -> frozenset[str]:
    """All words, numbers and codes of a text, folded as in `terms`."""
    return frozenset(_fold(word) for word in _TERM.findall(text))


def normalised(text: str) -> str:
    return " ".join(text.split())


def _of_result(call: ToolCall, text: str, node: int) -> list[Passage]:
    url = call.arguments.get("url")
    if isinstance(url, str):
        return [Passage(_address(url), normalised(text), node)]
    return [Passage(_address(link), normalised(hit), node) for link, hit in _hits(text)]


def _hits(text: str) -> list[tuple[str, str]]:
    """(link, title and snippet) of each hit of a search result."""
    hits: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if (match := _HIT.match(line)) is not None:
            hits.append((match["link"], [match["title"]]))
        elif hits:
            hits[-1][1].append(line)
    return [(link, "\n".join(lines)) for link, lines in hits]


def _check(link: Evidence, observed: Sequence[Passage]) -> LinkCheck:
    quote = normalised(link.quote)
    holding = [p for p in observed if quote and quote in p.text]
    if not holding:
        return LinkCheck(link, LinkStatus.QUOTE_NOT_FOUND)
    there = [p for p in holding if p.source == _address(link.source)]
    if not there:
        return LinkCheck(link, LinkStatus.WRONG_SOURCE)
    claimed, stated = _claimed(link.claim), asserted(quote, link.claim)
    if not claimed <= words(quote):
        return LinkCheck(link, LinkStatus.CLAIM_NOT_IN_QUOTE)
    if not claimed <= words(stated):
        return LinkCheck(link, LinkStatus.QUOTE_SAYS_OTHERWISE)
    return LinkCheck(link, LinkStatus.SUPPORTED, there[0].node, stated)


def _claimed(claim: str) -> frozenset[str]:
    """What the quote must contain: the claim's names and numbers; of a claim without any, all its words."""
    return terms(claim) or (words(claim) - GRAMMAR) or words(claim)


def _address(url: Any) -> str:
    return str(url).strip().strip("<>").rstrip("/")


def _fold(word: str) -> str:
    word = word.casefold().replace("’", "'")
    if word[0].isdigit():
        return re.sub(r",(?=\d{3})", "", word)
    return word.removesuffix("'s") if len(word) > 2 else word
