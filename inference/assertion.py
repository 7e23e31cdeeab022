"""What a quote asserts of what its claim states: the quote without the clauses that deny it or set it in the past.

* A clause with a marker of denial (not, never, neither ...) or of the past (former, once, used to, no longer ...) bears
  out only a claim that has such a marker itself; one of the past also a claim in the past tense.
* Clauses are parted by commas, semicolons, colons, brackets and dashes. A marked one that opens its sentence in at most
  three words ("Long ago, ...") governs the sentence, which goes with it.
* A marker with a capital letter that does not begin a sentence is part of a name; "not only" denies nothing.
* Lexical, and of English alone: what is denied in other words, or in another language, passes. Pure.
"""

import re

from inference.web.text import sentences

_DENIAL = re.compile(r"\b(?:not(?! (?:only|just|merely)\b)|cannot|never|neither|nor)\b|n['’]t\b")
_PAST = re.compile(
    r"\b(?:former|formerly|previously|once|erstwhile|used to|no longer|no more|any ?more|long ago|at one time)\b"
)
_PAST_TENSE = re.compile(r"\b(?:was|were|had|did|been|[a-z]+ed)\b")
_BETWEEN_CLAUSES = re.compile(r",(?!\d)|[;:()]|\s[–—-]\s")
_OPENING_WORDS = 3


def asserted(quote: str, claim: str) -> str:
    """`quote` without what bears out no such claim; the same text where it has no such part."""
    if _is_marked(claim.lower(), (_DENIAL, _PAST)):
        return quote
    # A name may open the claim, a verb hardly ever: "United ..." is no past tense.
    markers = (_DENIAL,) if _PAST_TENSE.search(claim) else (_DENIAL, _PAST)
    if not _is_marked(quote.lower(), markers):
        return quote
    return " ".join(filter(None, (_unmarked(sentence, markers) for sentence in sentences(quote))))


def _unmarked(sentence: str, markers: tuple[re.Pattern[str], ...]) -> str:
    if not _is_marked(_opened_small(sentence), markers):
        return sentence
    first, *others = _BETWEEN_CLAUSES.split(sentence)
    kept = [clause.strip() for clause in others if not _is_marked(clause, markers)]
    if not _is_marked(_opened_small(first), markers):
        kept.insert(0, first.strip())
    elif len(first.split()) <= _OPENING_WORDS:
        return ""
    return ", ".join(kept)


def _is_marked(text: str, markers: tuple[re.Pattern[str], ...]) -> bool:
    return any(marker.search(text) for marker in markers)


def _opened_small(sentence: str) -> str:
    """Its first letter small: a capital there says nothing about the word."""
    return sentence[:1].lower() + sentence[1:]
