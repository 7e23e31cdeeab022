"""The embedded real facts: the World Factbook, 2015 edition, public domain.

* `source_rows` gives the file as it was carried: 15,948 facts with the wording of their source, then typed values read
  from field lines by `scripts/make_factbook.py`.
* `load` gives the table that pages are rendered from. Its names are fit for a sentence: they begin with a capital
  letter or a digit (internet codes with "."), and hold no `;`, `|`, double quote, bracket or line break. No name stands
  for entities of two kinds that have pages, whatever the letter case. `borders` is symmetric. A subject has at least
  `ENOUGH_RELATIONS` relations; at most `LIST_MAX` languages; one value of each relation that is not `many`.
  `value` keeps the source's wording.
* `Counts` says what cleaning did. Everything is a pure function of the file.
"""

import json
import lzma
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from data_synthesis.facts import Fact, FactTable, table
from data_synthesis.relations import RELATIONS

ENOUGH_RELATIONS = 12
LIST_MAX = 6
FORBIDDEN = re.compile(r'[;|"\[\](){}<>\n\r]')

SUBJECTS = {
    "Ascension, and Tristan da Cunha Saint Helena": "Saint Helena",
    "Congo": "Republic of the Congo",
    "DRC": "Democratic Republic of the Congo",
    "The Dominican": "Dominican Republic",
    "The Bahamas": "Bahamas",
    "The Gambia": "Gambia",
    "Virgin Islands": "United States Virgin Islands",
}
"""Countries whose name in the source is cut, turned round or needs an article."""

OBJECTS = {
    "Angeles-Long Beach-Santa Ana": "Los Angeles-Long Beach-Santa Ana",
    "Caribbean Ocean": "Caribbean Sea",
    "Chisinau in Romanian": "Chisinau",
    "G- 9": "G-9",
    "MIUSMA": "MINUSMA",
    "Nashid al-watani al-imarati": "Nashid al-Watani al-Imarati",
    "Soufriere Hills volcano pre-eruption height was": "Soufriere Hills",
    "Tigrigna": "Tigrinya",
    "UNSC": "UN Security Council",
}
"""Objects that the source misspells, or spells in two ways."""

_PAGED = frozenset(r.kind for r in RELATIONS.values() if r.inverse_sentences) | {"country"}
_KIND_WORDS = {
    "city": "{} City",
    "summit": "{} Summit",
    "basin": "{} Basin",
    "anthem": "{} Anthem",
    "organisation": "{} Organisation",
    "person": "{} the Elder",
}
_PRECEDENCE = ("country", "city", "summit", "basin", "person", "organisation", "anthem")
_RANKS = re.compile(r"^(Lt\. Gen\.|Lt\. Col\.|Vice President|Sir) ")
_ROMAN = re.compile(r"^[IVX]+$")
_PARTICLES = frozenset("bin da de del dos do la van von y".split())
_CITY_PARTICLES = frozenset("au aux de del en es of la le".split())


@dataclass(frozen=True, slots=True)
class Counts:
    rows: int
    """Rows of the file."""
    kept: int
    """Facts of the table, added borders included."""
    countries: int
    dropped: dict[str, int]
    """Rows left out, by reason: subject, object, second value, long list, shared code, same fact."""
    borders_added: int
    """Borders the source states from one side only."""
    renamed: dict[str, str]
    """Names told apart because another kind of entity bears them too."""


@cache
def source_rows() -> tuple[tuple[str, str, str, str], ...]:
    """Every (subject, relation, object, source value) of the file, in its order."""
    packed = files("data_synthesis").joinpath("data/factbook.jsonl.xz").read_bytes()
    lines = lzma.decompress(packed).decode("utf-8").splitlines()
    return tuple((s, r, o, v) for s, r, o, v in map(json.loads, lines))


def load() -> FactTable:
    """The cleaned table."""
    return _cleaned()[0]


def counts() -> Counts:
    """What became of the rows."""
    return _cleaned()[1]


@cache
def _cleaned() -> tuple[FactTable, Counts]:
    rows = source_rows()
    dropped: Counter[str] = Counter()
    facts = [Fact(country_name(s), r, display_name(r, o), v) for s, r, o, v in rows]
    facts, renamed = _tell_apart(_one_spelling(facts))
    facts = _drop_repeats(facts, dropped)
    facts = _drop_shared_codes(facts, dropped)
    facts = _drop_thin(facts, dropped)
    facts, added = _symmetric(facts)
    made = table(facts)
    return made, Counts(len(rows), len(made), len(made.subjects), dict(dropped), added, renamed)


# -- names ----------------------------------------------------------------------------------------------------------


def country_name(name: str) -> str:
    return SUBJECTS.get(name, name)


def display_name(relation: str, name: str) -> str:
    """The name as it stands in a sentence."""
    kind = RELATIONS[relation].kind
    name = re.sub(r" \((organization|language|anthem)\)$", "", name)
    name = OBJECTS.get(name, name)
    if kind == "country":
        return country_name(name)
    if kind == "person":
        return person_name(name)
    if kind == "city":
        name = _city_name(name)
    if kind in ("summit", "basin"):
        name = name.split("/")[0]
    if kind == "anthem":
        name = name.replace("`", "'").rstrip("!?").replace("! ", ", ")
    return name if kind == "code" else name[0].upper() + name[1:]


def person_name(name: str) -> str:
    """A person's name in ordinary letters: surnames stand in capitals in the source."""
    name = _RANKS.sub("", name.split(" - ")[0])
    name = re.sub(r" of (the Netherlands|Denmark|Norway)$", "", name)
    name = re.sub(r"[\"“”]|(?<=\s)'|'(?=\s)", "", name)
    words = [_word(word) for word in name.split()]
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])


def _word(word: str) -> str:
    if not any(c.islower() for c in word) and word.lower() in _PARTICLES:
        return word.lower()
    return "-".join(_part(part) for part in word.split("-"))


def _part(part: str) -> str:
    letters = re.sub(r"[^A-Za-z]", "", part.removeprefix("Mc"))
    if len(letters) < 2 or not letters.isupper() or _ROMAN.match(part):
        return part
    if part.startswith("O'"):
        return "O'" + part[2:].capitalize()
    if part.upper().startswith("MC"):
        return "Mc" + part[2:].capitalize()
    return part.capitalize()


def _city_name(name: str) -> str:
    """Small words small again, where the source wrote every word large."""
    name = re.sub(r"'S\b", "'s", name)
    words = re.split(r"([ -])", name)
    return "".join(w.lower() if i and w.lower() in _CITY_PARTICLES else w for i, w in enumerate(words))


def _key(name: str) -> str:
    return re.sub(r"[^\w]", "", name).casefold()


def _one_spelling(facts: list[Fact]) -> list[Fact]:
    """A city and its country's capital are spelled alike, as the capital is."""
    capitals = {(f.subject, _key(f.object)): f.object for f in facts if f.relation == "capital"}
    return [
        Fact(f.subject, f.relation, capitals.get((f.subject, _key(f.object)), f.object), f.value)
        if f.relation == "major urban area"
        else f
        for f in facts
    ]


def _tell_apart(facts: list[Fact]) -> tuple[list[Fact], dict[str, str]]:
    """One name, one kind: of the kinds that have pages, those later in `_PRECEDENCE` get a word added."""
    bearers: dict[str, set[str]] = defaultdict(set)
    for fact in facts:
        bearers[_key(fact.subject)].add("country")
        if RELATIONS[fact.relation].kind in _PAGED:
            bearers[_key(fact.object)].add(RELATIONS[fact.relation].kind)
    renamed: dict[str, str] = {}
    made = []
    for fact in facts:
        kind = RELATIONS[fact.relation].kind
        rivals = bearers.get(_key(fact.object), set()) if kind in _PAGED else set()
        name = fact.object
        if len(rivals) > 1 and kind != min(rivals, key=_PRECEDENCE.index):
            name = renamed[fact.object] = _KIND_WORDS[kind].format(fact.object)
        made.append(Fact(fact.subject, fact.relation, name, fact.value))
    return made, renamed


# -- which facts ----------------------------------------------------------------------------------------------------


def _drop_repeats(facts: Iterable[Fact], dropped: Counter[str]) -> list[Fact]:
    """No fact twice, no second value where there can be one, no language beyond `LIST_MAX`."""
    held: dict[tuple[str, str], set[str]] = defaultdict(set)
    kept = []
    for fact in facts:
        have = held[fact.subject, fact.relation]
        if fact.object in have or fact.object == fact.subject:
            dropped["same fact"] += 1
        elif have and not RELATIONS[fact.relation].many:
            dropped["second value"] += 1
        elif fact.relation == "language" and len(have) == LIST_MAX:
            dropped["long list"] += 1
        else:
            have.add(fact.object)
            kept.append(fact)
    return kept


def _drop_shared_codes(facts: list[Fact], dropped: Counter[str]) -> list[Fact]:
    bearers = Counter(f.object for f in facts if f.relation == "internet code")
    kept = [f for f in facts if bearers[f.object] < 2]
    dropped["shared code"] = len(facts) - len(kept)
    return kept


def _drop_thin(facts: list[Fact], dropped: Counter[str]) -> list[Fact]:
    """Only subjects with enough relations, and only objects that are not themselves left out."""
    relations: dict[str, set[str]] = defaultdict(set)
    for fact in facts:
        relations[fact.subject].add(fact.relation)
    enough = {s for s, known in relations.items() if len(known) >= ENOUGH_RELATIONS}
    kept = []
    for fact in facts:
        if fact.subject not in enough:
            dropped["subject"] += 1
        elif RELATIONS[fact.relation].kind == "country" and fact.object not in enough:
            dropped["object"] += 1
        else:
            kept.append(fact)
    return kept


def _symmetric(facts: list[Fact]) -> tuple[list[Fact], int]:
    """A border stated from one side is one from the other side too."""
    known = {(f.subject, f.object) for f in facts if f.relation == "borders"}
    added = [
        Fact(f.object, "borders", f.subject, f.value)
        for f in facts
        if f.relation == "borders" and (f.object, f.subject) not in known
    ]
    return facts + added, len(added)
