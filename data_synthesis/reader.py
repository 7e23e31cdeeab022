"""Reads the facts a sentence states: the inverse of `pages`.

Exact over our own wording: a sentence either matches one template of a relation as a whole, and then gives one fact an
object, or it states nothing. Sentences of `Relation.former` are never facts. Used by the symbolic teacher (which may
state only what it has read), by the corpus pipeline's extractor, and by tests as the check that pages say what the
table says.
"""

import re
from functools import cache

from data_synthesis.facts import Fact
from data_synthesis.relations import RELATIONS, Relation


def _pattern(template: str) -> re.Pattern[str]:
    escaped = re.escape(template).replace(r"\{s\}", "(?P<s>.+)").replace(r"\{o\}", "(?P<o>.+)")
    return re.compile(f"^{escaped}$")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Relation | None, bool], ...]:
    """(pattern, relation or None for a former value, subject is a list), the most literal words first."""
    rows: list[tuple[str, Relation | None, bool]] = []
    for relation in RELATIONS.values():
        rows += [(t, relation, False) for t in relation.sentences]
        rows += [(t, relation, relation.lookup == "listed") for t in relation.inverse_sentences]
        rows += [(t, None, False) for t in relation.former]
    rows.sort(key=lambda row: -len(row[0]))
    return tuple((_pattern(t), relation, listed) for t, relation, listed in rows)


def read_sentence(sentence: str) -> tuple[Fact, ...]:
    """The facts `sentence` states, in order; empty when it states none or was cut."""
    if sentence.rstrip().endswith("..."):
        return ()
    for pattern, relation, listed in _patterns():
        match = pattern.match(sentence.strip())
        if match is None:
            continue
        if relation is None:
            return ()
        subjects = match["s"].split("; ") if listed else [match["s"]]
        objects = match["o"].split("; ") if relation.many and not listed else [match["o"]]
        return tuple(Fact(s, relation.name, o, sentence.strip()) for s in subjects for o in objects)
    return ()


def read_text(text: str) -> tuple[Fact, ...]:
    """The facts all lines of `text` state; `value` is the sentence each rests on."""
    return tuple(fact for line in text.split("\n") for fact in read_sentence(line))
