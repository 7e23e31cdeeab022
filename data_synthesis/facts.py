"""Typed facts and the table that answers for them.

A `Fact` is (subject, relation, object); `value` keeps the wording of the source. A `FactTable` is immutable, answers
both directions in constant time, and keeps insertion order, so everything made from it is reproducible.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from data_synthesis.relations import RELATIONS


@dataclass(frozen=True, slots=True)
class Fact:
    subject: str
    relation: str
    object: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class FactTable:
    facts: tuple[Fact, ...]
    _out: dict[tuple[str, str], tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _in: dict[tuple[str, str], tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _subjects: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        out: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        inward: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for fact in self.facts:
            out[fact.subject, fact.relation][fact.object] = None
            inward[fact.object, fact.relation][fact.subject] = None
        object.__setattr__(self, "_out", {k: tuple(v) for k, v in out.items()})
        object.__setattr__(self, "_in", {k: tuple(v) for k, v in inward.items()})
        object.__setattr__(self, "_subjects", tuple(dict.fromkeys(f.subject for f in self.facts)))

    @property
    def subjects(self) -> tuple[str, ...]:
        """Every entity that is a subject, in the order first seen."""
        return self._subjects

    def objects(self, subject: str, relation: str) -> tuple[str, ...]:
        """What `subject` has under `relation`; empty when nothing is known."""
        return self._out.get((subject, relation), ())

    def holders(self, obj: str, relation: str) -> tuple[str, ...]:
        """The subjects that have `obj` under `relation`."""
        return self._in.get((obj, relation), ())

    def holds(self, subject: str, relation: str, obj: str) -> bool:
        return obj in self._out.get((subject, relation), ())

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)


def table(facts: Iterable[Fact]) -> FactTable:
    """A table of the known relations among `facts`, duplicates dropped."""
    return FactTable(tuple(dict.fromkeys(f for f in facts if f.relation in RELATIONS)))
