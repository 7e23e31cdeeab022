"""Pages written from facts, in our own sentences, on hosts that link to each other.

* `pedia.example` has one page an entity: for a country its region, one more fact and the titles of pages that tell
  more; for anything else the sentence that ties it to its country (an organisation's page lists its members).
* Topical hosts have one page a country and topic; each topic has two hosts, and which of them carries a country, its
  page's title and the wording are drawn from the seed: an address cannot be guessed, it has to be found.
* Topical pages carry distractors: sentences of `Relation.former`, which name another country's value as one that does
  not hold, or no longer. No page states more than one topic of a country, so a question of several relations needs
  several pages.
* One sentence a line. Lists are joined by "; " and cut into sentences of at most `LIST_MAX` names.

The same (table, seed) gives the same pages.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from data_synthesis.facts import FactTable
from data_synthesis.relations import RELATIONS, Relation

LIST_MAX = 6
ENCYCLOPAEDIA = "pedia.example"
HOSTS: dict[str, tuple[str, str]] = {
    "cities": ("cities.example", "towns.example"),
    "summits": ("summits.example", "heights.example"),
    "anthems": ("anthems.example", "songs.example"),
    "leaders": ("leaders.example", "offices.example"),
    "borders": ("borders.example", "frontiers.example"),
    "trade": ("trade.example", "markets.example"),
    "people": ("people.example", "census.example"),
    "unions": ("unions.example", "treaties.example"),
    "data": ("data.example", "almanac.example"),
    "history": ("history.example", "chronicle.example"),
}
TITLES: dict[str, tuple[str, ...]] = {
    "cities": ("Cities of {s}", "{s} and its towns", "Capital of {s}"),
    "summits": ("Heights of {s}", "{s} from top to bottom", "Highest point of {s}"),
    "anthems": ("Anthem of {s}", "{s} in song"),
    "leaders": ("Leaders of {s}", "Who governs {s}", "Government of {s}"),
    "borders": ("Borders of {s}", "Neighbours of {s}"),
    "trade": ("Trade of {s}", "{s} exports and imports"),
    "people": ("People of {s}", "Languages of {s}"),
    "unions": ("Memberships of {s}", "{s} in the world"),
    "data": ("Data on {s}", "{s} in figures"),
    "history": ("History of {s}", "{s} and its region"),
}


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    title: str
    text: str
    links: tuple[str, ...]


def address(host: str, title: str) -> str:
    """The page's address: its title stands in it, spaces as underscores."""
    return f"https://{host}/" + quote(title.replace(" ", "_"), safe="_.,'()-!")


def states(
    relation: Relation, subject: str, objects: Sequence[str], rng: random.Random, *, among: Sequence[str] = ()
) -> list[str]:
    """Sentences that state `objects` of `subject`, worded at random from `among` or the relation's own."""
    templates = among or relation.sentences
    chunks = [objects[i : i + LIST_MAX] for i in range(0, len(objects), LIST_MAX)]
    return [rng.choice(templates).format(s=subject, o="; ".join(chunk)) for chunk in chunks]


def render_pages(facts: FactTable, seed: int) -> Iterator[Page]:
    """Every page of the web of `facts`."""
    countries = [s for s in facts.subjects if any(facts.objects(s, r) for r in RELATIONS)]
    sites = {(c, topic): _site(c, topic, seed) for c in countries for topic in HOSTS}
    for country in countries:
        yield _country_page(facts, country, seed, sites)
        for topic in HOSTS:
            page = _topic_page(facts, country, topic, seed, sites, countries)
            if page is not None:
                yield page
    yield from _entity_pages(facts, seed, sites, set(countries))


def _site(country: str, topic: str, seed: int) -> tuple[str, str]:
    """(host, title) of a country's page on a topic."""
    rng = random.Random(f"site/{seed}/{topic}/{country}")
    return rng.choice(HOSTS[topic]), rng.choice(TITLES[topic]).format(s=country)


def _country_page(facts: FactTable, country: str, seed: int, sites: dict[tuple[str, str], tuple[str, str]]) -> Page:
    rng = random.Random(f"country/{seed}/{country}")
    lines = []
    for name in ("region", rng.choice(("capital", "language", "population"))):
        objects = facts.objects(country, name)
        if objects:
            lines += states(RELATIONS[name], country, objects, rng)
    topics = [t for t in HOSTS if any(facts.objects(country, r.name) for r in RELATIONS.values() if r.topic == t)]
    told = rng.sample(topics, min(3, len(topics)))
    lines.append(f"More on {country}: " + "; ".join(sites[country, t][1] for t in told) + ".")
    links = tuple(address(*sites[country, t]) for t in topics)
    return Page(address(ENCYCLOPAEDIA, country), country, "\n".join(lines), links)


def _topic_page(
    facts: FactTable,
    country: str,
    topic: str,
    seed: int,
    sites: dict[tuple[str, str], tuple[str, str]],
    countries: Sequence[str],
) -> Page | None:
    rng = random.Random(f"topic/{seed}/{topic}/{country}")
    lines: list[str] = []
    mentioned: list[str] = []
    for relation in RELATIONS.values():
        objects = facts.objects(country, relation.name) if relation.topic == topic else ()
        if not objects:
            continue
        lines += states(relation, country, objects, rng)
        mentioned += objects if relation.kind == "country" else ()
        lines += _distractors(facts, country, relation, rng, countries)
    if not lines:
        return None
    rng.shuffle(lines)
    host, title = sites[country, topic]
    links = [address(ENCYCLOPAEDIA, country)]
    links += [address(*sites[o, topic]) for o in mentioned if (o, topic) in sites]
    return Page(address(host, title), title, "\n".join(lines), tuple(dict.fromkeys(links)))


def _distractors(
    facts: FactTable, country: str, relation: Relation, rng: random.Random, countries: Sequence[str]
) -> list[str]:
    """At most one sentence about a value that does not hold for `country`."""
    if not relation.former or rng.random() < 0.5:
        return []
    other = rng.choice(countries)
    wrong = [o for o in facts.objects(other, relation.name) if not facts.holds(country, relation.name, o)]
    if not wrong or other == country:
        return []
    return [rng.choice(relation.former).format(s=country, o=rng.choice(wrong))]


def _entity_pages(
    facts: FactTable, seed: int, sites: dict[tuple[str, str], tuple[str, str]], countries: set[str]
) -> Iterator[Page]:
    """Pages of everything that is not a country but has a page of its own."""
    owners: dict[str, list[tuple[Relation, str]]] = {}
    for fact in facts:
        relation = RELATIONS[fact.relation]
        if relation.inverse_sentences and fact.object not in countries:
            owners.setdefault(fact.object, []).append((relation, fact.subject))
    for entity, ties in owners.items():
        rng = random.Random(f"entity/{seed}/{entity}")
        lines = []
        for relation in dict.fromkeys(r for r, _ in ties):
            holders = [s for r, s in ties if r is relation]
            if relation.lookup == "listed":
                chunks = [holders[i : i + LIST_MAX] for i in range(0, len(holders), LIST_MAX)]
            else:
                chunks = [[h] for h in holders]
            lines += [rng.choice(relation.inverse_sentences).format(s="; ".join(c), o=entity) for c in chunks]
        links = tuple(dict.fromkeys(address(*sites[s, r.topic]) for r, s in ties if (s, r.topic) in sites))
        yield Page(address(ENCYCLOPAEDIA, entity), entity, "\n".join(lines), links)
