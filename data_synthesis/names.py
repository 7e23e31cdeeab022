"""Random names that look like names, some of them alike.

Pure functions of a `random.Random`. A name begins with a capital; about one in five is made to look like an earlier
one (one syllable changed, or a qualifier added), so that a reader has to copy, not guess.
"""

import random
from collections.abc import Callable, Container, Mapping, Sequence

from data_synthesis.facts import FactTable
from data_synthesis.relations import RELATIONS

_ONSETS = "b br c ch d dr f g gl h j k kl l m n p pr qu r s sh st t tr v w y z".split()
_VOWELS = "a e i o u a e o a i ou ia".split()
_CODAS = ["", "", "", "", "", "n", "r", "l", "s", "m", "t", "nd"]
_QUALIFIERS = ("New", "North", "South", "East", "West", "Upper", "Lower", "Saint")
_LINKS = (" and ", " of ", " de ")
ALIKE = frozenset({"country", "city", "person", "summit", "anthem"})
"""Kinds in which some names are made to resemble others."""


def _syllable(rng: random.Random) -> str:
    return rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)


def word(rng: random.Random, low: int = 2, high: int = 2) -> str:
    """One capitalised word of `low` to `high` syllables."""
    return "".join(_syllable(rng) for _ in range(rng.randint(low, high))).capitalize()


def lookalike(rng: random.Random, name: str) -> str:
    """A different name that is easily mistaken for `name`."""
    words = name.split(" ")
    if rng.random() < 0.4 and words[0] not in _QUALIFIERS:
        return " ".join([rng.choice(_QUALIFIERS), *words])
    last = words[-1]
    return " ".join([*words[:-1], last[: max(2, len(last) - 2)] + rng.choice(_VOWELS) + rng.choice("nrlstmk")])


def place(rng: random.Random) -> str:
    """A country, city or region name of one to three words."""
    roll = rng.random()
    if roll < 0.72:
        return word(rng)
    if roll < 0.88:
        return f"{rng.choice(_QUALIFIERS)} {word(rng)}"
    return f"{word(rng, 1, 2)}{rng.choice(_LINKS)}{word(rng, 1, 2)}"


def person(rng: random.Random) -> str:
    return " ".join(word(rng, 1, 2) for _ in range(2 if rng.random() < 0.8 else 3))


def summit(rng: random.Random) -> str:
    return rng.choice(("Mount {}", "{} Peak", "{}", "{} Dagh", "Pico {}")).format(word(rng))


def basin(rng: random.Random) -> str:
    return rng.choice(("{} River", "Lake {}", "{} Depression", "{} Sea", "Gulf of {}")).format(word(rng))


def anthem(rng: random.Random) -> str:
    return rng.choice(("{} {}", "Hymn of {}", "{} Arise", "Land of {}", "{}")).format(word(rng), word(rng, 1, 2))


def acronym(rng: random.Random) -> str:
    return "".join(rng.choice("ABCDEFGILMNOPRSTUW") for _ in range(rng.randint(3, 5)))


def language(rng: random.Random) -> str:
    return word(rng, 1, 2) + rng.choice(("ish", "ese", "an", "i", "ic"))


def code(rng: random.Random) -> str:
    """Two letters as real ones have, or three, so that a large world does not run out of them."""
    return "." + "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.choice((2, 3))))


def chimera(rng: random.Random, words: Sequence[str]) -> str:
    """A capitalised word of the head of one of `words` and the tail of another: new, of familiar pieces."""
    head, tail = rng.choice(words), rng.choice(words)
    start = head[: rng.randint(2, max(2, len(head) - 1))]
    end = tail[rng.randint(1, max(1, len(tail) - 2)) :].lower()
    return (start + end)[:14].capitalize()


Pools = Mapping[str, Sequence[str]]
"""Names to draw from, by kind of entity (`Relation.kind`)."""


def pools_of(facts: FactTable, countries: Container[str]) -> dict[str, tuple[str, ...]]:
    """The names in `facts` that belong to `countries` and to no other: real names for generated worlds."""
    foreign = {f.object for f in facts if f.subject not in countries}
    found: dict[str, dict[str, None]] = {"country": {c: None for c in facts.subjects if c in countries}}
    for fact in facts:
        relation = RELATIONS[fact.relation]
        if fact.subject in countries and fact.object not in foreign and relation.kind not in ("number", "code", "year"):
            found.setdefault(relation.kind, {})[fact.object] = None
    found["country"] = {c: None for c in found["country"] if c in countries}
    return {kind: tuple(names) for kind, names in found.items()}


class NameSource:
    """Draws names that are new to it.

    `alike` is the share made to resemble an earlier name of the kind. With `pools`, `real` is the share taken
    from them, as long as they last, and `mixed` the share in which some word is a chimera of their words: a reader then
    meets pieces of real names in combinations it cannot know, and has to copy them.
    """

    def __init__(
        self, rng: random.Random, pools: Pools, alike: float = 0.15, real: float = 0.15, mixed: float = 0.5
    ) -> None:
        self._rng = rng
        self._alike = alike
        self._real = real if pools else 0.0
        self._mixed = mixed if pools else 0.0
        self._pools = {kind: rng.sample(list(names), len(names)) for kind, names in sorted(pools.items())}
        self._words = sorted({w for names in pools.values() for name in names for w in name.split() if w.isalpha()})
        self._words = [w for w in self._words if len(w) > 2]
        self._used: set[str] = set()
        self._given: dict[str, list[str]] = {}

    def draw(self, kind: str, make: Callable[[random.Random], str]) -> str:
        """A fresh name of `kind`: from the pool, like an earlier one, or from `make`."""
        earlier = self._given.setdefault(kind, [])
        while True:
            name = self._candidate(kind, make, earlier)
            if name not in self._used:
                self._used.add(name)
                earlier.append(name)
                return name

    def _candidate(self, kind: str, make: Callable[[random.Random], str], earlier: list[str]) -> str:
        roll = self._rng.random()
        if roll < self._real and self._pools.get(kind):
            return self._pools[kind].pop()
        if roll > 1 - self._alike and earlier and kind in ALIKE:
            return lookalike(self._rng, self._rng.choice(earlier))
        name = make(self._rng)
        if roll < self._real + self._mixed and kind not in ("code", "organisation"):
            words = name.split(" ")
            at = self._rng.randrange(len(words))
            if words[at][:1].isupper():
                words[at] = chimera(self._rng, self._words)
            name = " ".join(words)
        return name
