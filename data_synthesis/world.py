"""Generated worlds: fact tables of the shape of the real one, with random names, from a seed.

Same relations and cardinalities as the embedded facts (names may be borrowed from a pool of real ones, so that words
are met in training, but what holds of them is random); `borders` is symmetric; capitals, anthems, summits, leaders and
internet codes belong to one country each; resources, religions, regions and decades are shared by many. The same
(seed, countries) gives the same table.
"""

import random
from heapq import nsmallest

from data_synthesis import names
from data_synthesis.facts import Fact, FactTable, table

RESOURCES = (
    "Copper Tin Gold Silver Iron Coal Petroleum Timber Fish Zinc Lead Nickel Uranium Bauxite Salt Gypsum "
    "Diamonds Phosphates Hydropower Limestone Marble Clay Cobalt Graphite"
).split()
RELIGIONS = "Christian Muslim Hindu Buddhist Jewish Animist Orthodox Protestant Shinto Taoist".split()


def generate_world(seed: int, countries: int = 40, pools: names.Pools | None = None) -> FactTable:
    """A world of `countries` countries; some of its names come from `pools`, none of its facts do."""
    rng = random.Random(f"world/{seed}/{countries}")
    source = names.NameSource(rng, pools or {})
    lands = [source.draw("country", names.place) for _ in range(countries)]
    regions = [source.draw("region", names.place) for _ in range(max(2, countries // 8))]
    unions = [source.draw("organisation", names.acronym) for _ in range(max(3, countries // 4))]
    tongues = [source.draw("language", names.language) for _ in range(max(4, countries // 2))]
    neighbours = _neighbours(rng, lands)
    facts: list[Fact] = []
    for land in lands:
        facts += _own_facts(rng, source, land)
        facts += _shared_facts(rng, land, lands, regions, unions, tongues)
        facts += [Fact(land, "borders", other) for other in neighbours[land]]
    return table(facts)


def _neighbours(rng: random.Random, lands: list[str]) -> dict[str, list[str]]:
    """A symmetric graph: each country touches the ones nearest to it on a random plane."""
    spots = {land: (rng.random(), rng.random()) for land in lands}
    found: dict[str, list[str]] = {land: [] for land in lands}
    for land in lands:
        x, y = spots[land]
        others = (o for o in lands if o != land)
        near = nsmallest(3, others, key=lambda o: (spots[o][0] - x) ** 2 + (spots[o][1] - y) ** 2)
        for other in near[: rng.randint(1, 3)]:
            if other not in found[land]:
                found[land].append(other)
                found[other].append(land)
    return found


def _own_facts(rng: random.Random, source: names.NameSource, land: str) -> list[Fact]:
    """Facts whose object belongs to this country alone."""
    capital = source.draw("city", names.place)
    chief = source.draw("person", names.person)
    head = chief if rng.random() < 0.15 else source.draw("person", names.person)
    return [
        Fact(land, "capital", capital),
        *(Fact(land, "major urban area", c) for c in [capital, *(source.draw("city", names.place) for _ in range(2))]),
        Fact(land, "highest point", source.draw("summit", names.summit)),
        Fact(land, "lowest point", source.draw("basin", names.basin)),
        Fact(land, "national anthem", source.draw("anthem", names.anthem)),
        Fact(land, "anthem author", source.draw("person", names.person)),
        Fact(land, "chief of state", chief),
        Fact(land, "head of government", head),
        Fact(land, "internet code", source.draw("code", names.code)),
        Fact(land, "area", f"{rng.randint(1, 99)},{rng.randint(0, 999):03d}"),
        Fact(land, "population", f"{rng.randint(1, 99)},{rng.randint(0, 999):03d},{rng.randint(0, 999):03d}"),
        Fact(land, "coastline", str(rng.randint(0, 4000))),
    ]


def _shared_facts(
    rng: random.Random, land: str, lands: list[str], regions: list[str], unions: list[str], tongues: list[str]
) -> list[Fact]:
    """Facts whose object many countries share."""
    others = [o for o in lands if o != land]
    return [
        Fact(land, "region", rng.choice(regions)),
        Fact(land, "independence", str(rng.randint(1800, 1999))),
        *(Fact(land, "natural resource", r) for r in rng.sample(RESOURCES, rng.randint(2, 4))),
        *(Fact(land, "religion", r) for r in rng.sample(RELIGIONS, rng.randint(1, 2))),
        *(Fact(land, "language", t) for t in rng.sample(tongues, rng.randint(1, 2))),
        *(Fact(land, "member of", u) for u in rng.sample(unions, rng.randint(1, 2))),
        *(Fact(land, "export partner", o) for o in rng.sample(others, min(3, len(others)))),
        *(Fact(land, "import partner", o) for o in rng.sample(others, min(3, len(others)))),
    ]
