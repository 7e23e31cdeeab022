"""What a quote asserts of what its claim states: the quote without the clauses that deny it or set it in the past.

* A clause with a marker of denial (not, never, failed to ...), of intent (hoped to, plans to ...), of error (taken for,
  mistakenly ...) or of the past (former, once, no longer, has left, died out, an older ... was, old maps ...) bears out
  only a claim that has such a marker itself; one of the past also a claim in the past tense.
* Clauses are parted by commas, semicolons, colons, brackets and dashes. A marked one that opens its sentence in at most
  three words ("Long ago, ...") governs the sentence, which goes with it.
* A marker with a capital letter that does not begin a sentence is part of a name; "not only" denies nothing.
* Lexical, and of English alone: what is denied in other words, or in another language, passes. Pure.
"""

import re

from inference.web.text import sentences

_ADVERBS = r"(?: (?:long|once|since|already|now|also|just|often|then|first|at first|all but|\w+ly))*"

_DENIAL = re.compile(
    r"\b(?:not(?! (?:only|just|merely)\b)|cannot|never|neither|nor|(?:fail|refus|declin)\w* to)\b|n['’]t\b"
)
_INTENT = re.compile(
    r"\b(?:(?:hope[sd]?|hoping|wish(?:es|ed)?|expect(?:s|ed)?) (?:to|for|that)"
    r"|(?:plan(?:s|ned|ning)?|intend(?:s|ed)?|want(?:s|ed)?|seeks?|sought|aim(?:s|ed)?|promise[sd]?|tr(?:y|ies|ied|ying)"
    r"|attempt(?:s|ed)?) to|(?:was|were) to have|(?:would|should|could|might) have)\b"
)
_ERROR = re.compile(
    rf"\b(?:was|were|been){_ADVERBS} (?:taken for"
    r"|(?:thought|believed|assumed|supposed|presumed|held|said|reputed|rumou?red) to (?:be|have))\b"
    r"|\b(?:mistaken (?:for|as)|mistook|(?:mistaken|wrong|false|erroneous|supposed|alleged)ly)\b"
)
_PAST = re.compile(
    r"\b(?:former|formerly|previously|once|erstwhile|used to|no longer|no more|any ?more|long ago|at one time"
    r"|in the past|until (?:\d{3,4}|recently|then)|ex-\w+|(?:die[sd]?|dying) out"
    r"|(?:extinct|defunct|obsolete)(?=$|[.,;]| in\b)|quit|withdrew from|resigned (?:as|from)|seceded from"
    r"|broke (?:away )?from|ceased|gave up"
    r"|(?:an?|the|its|his|her|their|another|one) (?:older|earlier|previous|prior)\b[^,;:()]* (?:was|were|had)"
    r"|(?:old|older|oldest|ancient|early|earlier|outdated) (?:map|atlas|chart|source|text|book|record|account|writer"
    r"|chronicle|guide|survey|edition)(?:e?s)?)\b"
    r"|(?<!\bthe )\bleft (?=[A-Z]|the\b|in \d)"
    rf"|\b(?:has|have|had){_ADVERBS} (?:left(?! (?:an?|its|his|her|their)\b)|withdrawn|resigned|seceded|stopped|ended"
    r"|abandoned|given up|lost|vanished|disappeared"
    r"|been (?:dissolved|abolished|disbanded|closed|dropped|repealed|discontinued))\b"
)
_PAST_TENSE = re.compile(r"\b(?:was|were|had|did|been|[a-z]+ed)\b")
_NEVER_SO = (_DENIAL, _INTENT, _ERROR)
_BETWEEN_CLAUSES = re.compile(r",(?!\d)|[;:()]|\s[–—-]\s")
_OPENING_WORDS = 3


def asserted(quote: str, claim: str) -> str:
    """`quote` without what bears out no such claim; the same text where it has no such part."""
    if _is_marked(claim.lower(), (*_NEVER_SO, _PAST)):
        return quote
    # A name may open the claim, a verb hardly ever: "United ..." is no past tense.
    markers = _NEVER_SO if _PAST_TENSE.search(claim) else (*_NEVER_SO, _PAST)
    parts = sentences(quote)
    if not any(_is_marked(_opened_small(sentence), markers) for sentence in parts):
        return quote
    return " ".join(filter(None, (_unmarked(sentence, markers) for sentence in parts)))


def _unmarked(sentence: str, markers: tuple[re.Pattern[str], ...]) -> str:
    if not _is_marked(_opened_small(sentence), markers):
        return sentence
    first, *others = _BETWEEN_CLAUSES.split(sentence)
    kept = [clause.strip() for clause in others if not _is_marked(clause, markers)]
    if not _is_marked(_opened_small(first), markers):
        kept.insert(0, first.strip())
    elif len(first.split()) <= _OPENING_WORDS:
        return ""
    return sentence if len(kept) > len(others) else ", ".join(kept)


def _is_marked(text: str, markers: tuple[re.Pattern[str], ...]) -> bool:
    return any(marker.search(text) for marker in markers)


def _opened_small(sentence: str) -> str:
    """Its first letter small: a capital there says nothing about the word."""
    return sentence[:1].lower() + sentence[1:]
