"""The relations that facts are typed by, and the words they are written and asked in.

One `Relation` a kind of fact. Its `sentences` state the fact on a page (each can be read back by `reader`), its
`former` sentence states a value that no longer holds (a distractor that must not be read as a fact), and its phrases
build questions, queries, plans and claims. `{s}` is the subject, `{o}` the object, or the objects joined by "; ".

Every subject is a country. `lookup` says how an unknown subject is found from a known object:
    unique   one page names the pair, found by searching the object
    listed   the object's own page lists its subjects
    None     only by checking candidates one by one
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Relation:
    name: str
    topic: str
    """Which topical site carries it."""
    kind: str
    """What the object is: city, summit, person, country, organisation, value ..."""
    sentences: tuple[str, ...]
    _: KW_ONLY
    noun: str
    """Noun phrase of the object: "the capital of {s}"."""
    clause: str
    """Relative clause of the subject: "whose capital is {o}"."""
    query: str
    """Search words that, put beside the known name, find the page."""
    many: bool = False
    """A subject may have several objects; they share one sentence."""
    lookup: Literal["unique", "listed"] | None = None
    inverse_sentences: tuple[str, ...] = ()
    """On the object's own page. `{s}` may be a list when lookup is `listed`."""
    former: tuple[str, ...] = ()

    @property
    def claim(self) -> str:
        """How evidence words the fact, `{s}` and `{o}` to be filled in."""
        return f"{{s}} {self.name} {{o}}"


RELATIONS: dict[str, Relation] = {
    r.name: r
    for r in (
        Relation(
            "capital",
            "cities",
            "city",
            ("The capital of {s} is {o}.", "{s} is governed from its capital {o}.", "{s} has its capital at {o}."),
            inverse_sentences=("{o} is the capital of {s}.", "{o} serves as the capital of {s}."),
            former=("Long ago the capital of {s} was {o}.", "{o} was once the capital of {s}."),
            lookup="unique",
            noun="the capital of {s}",
            clause="whose capital is {o}",
            query="capital",
        ),
        Relation(
            "highest point",
            "summits",
            "summit",
            ("The highest point of {s} is {o}.", "{s} rises highest at {o}.", "No ground in {s} is higher than {o}."),
            inverse_sentences=("{o} is the highest point of {s}.", "{o} is the top of {s}."),
            former=("{o} was long taken for the highest point of {s}.",),
            lookup="unique",
            noun="the highest point of {s}",
            clause="whose highest point is {o}",
            query="highest point",
        ),
        Relation(
            "lowest point",
            "summits",
            "basin",
            ("The lowest point of {s} is {o}.", "{s} sinks lowest at {o}."),
            inverse_sentences=("{o} is the lowest point of {s}.",),
            former=("Old maps put the lowest point of {s} at {o}.",),
            noun="the lowest point of {s}",
            clause="whose lowest point is {o}",
            query="lowest point",
        ),
        Relation(
            "national anthem",
            "anthems",
            "anthem",
            ("The national anthem of {s} is {o}.", "{s} sings {o} as its national anthem."),
            inverse_sentences=("{o} is the national anthem of {s}.",),
            former=("An older anthem of {s} was {o}.",),
            lookup="unique",
            noun="the national anthem of {s}",
            clause="whose national anthem is {o}",
            query="national anthem",
        ),
        Relation(
            "anthem author",
            "anthems",
            "person",
            ("The anthem of {s} was written by {o}.", "Words and music of the anthem of {s} are by {o}."),
            inverse_sentences=("{o} wrote the anthem of {s}.",),
            many=True,
            lookup="unique",
            noun="the author of the anthem of {s}",
            clause="whose anthem was written by {o}",
            query="anthem author",
        ),
        Relation(
            "chief of state",
            "leaders",
            "person",
            ("The chief of state of {s} is {o}.", "{o} stands at the head of the state of {s}."),
            inverse_sentences=("{o} is the chief of state of {s}.",),
            former=("A former chief of state of {s} was {o}.",),
            lookup="unique",
            noun="the chief of state of {s}",
            clause="whose chief of state is {o}",
            query="chief of state",
        ),
        Relation(
            "head of government",
            "leaders",
            "person",
            ("The head of government of {s} is {o}.", "{o} leads the government of {s}."),
            inverse_sentences=("{o} is the head of government of {s}.",),
            former=("A former head of government of {s} was {o}.",),
            lookup="unique",
            noun="the head of government of {s}",
            clause="whose head of government is {o}",
            query="head of government",
        ),
        Relation(
            "borders",
            "borders",
            "country",
            ("{s} shares borders with {o}.", "{s} has land borders with {o}.", "The neighbours of {s} are {o}."),
            former=("{s} never had a border with {o}.",),
            many=True,
            lookup="listed",
            noun="a neighbour of {s}",
            clause="that borders {o}",
            query="borders",
        ),
        Relation(
            "export partner",
            "trade",
            "country",
            ("{s} exports mostly to {o}.", "The main export partners of {s} are {o}."),
            former=("{s} used to export to {o}.",),
            many=True,
            noun="an export partner of {s}",
            clause="that exports mostly to {o}",
            query="export partners",
        ),
        Relation(
            "import partner",
            "trade",
            "country",
            ("{s} imports mostly from {o}.", "The main import partners of {s} are {o}."),
            former=("{s} used to import from {o}.",),
            many=True,
            noun="an import partner of {s}",
            clause="that imports mostly from {o}",
            query="import partners",
        ),
        Relation(
            "language",
            "people",
            "language",
            ("The languages of {s} are {o}.", "People in {s} speak {o}."),
            former=("{o} is no longer spoken in {s}.",),
            many=True,
            noun="a language of {s}",
            clause="where people speak {o}",
            query="languages",
        ),
        Relation(
            "religion",
            "people",
            "value",
            ("The religions of {s} are {o}.", "People in {s} follow {o}."),
            former=("{o} has died out in {s}.",),
            many=True,
            noun="a religion of {s}",
            clause="where people follow {o}",
            query="religions",
        ),
        Relation(
            "member of",
            "unions",
            "organisation",
            ("{s} is a member of {o}.", "{s} belongs to {o}."),
            inverse_sentences=("The members of {o} are {s}.", "{o} unites {s}."),
            former=("{s} has left {o}.",),
            many=True,
            lookup="listed",
            noun="an organisation that {s} belongs to",
            clause="that is a member of {o}",
            query="members",
        ),
        Relation(
            "major urban area",
            "cities",
            "city",
            ("The large cities of {s} are {o}.", "Most townspeople of {s} live in {o}."),
            inverse_sentences=("{o} is a large city in {s}.",),
            many=True,
            lookup="unique",
            noun="a large city of {s}",
            clause="whose large cities include {o}",
            query="large cities",
        ),
        Relation(
            "internet code",
            "data",
            "code",
            ("The internet code of {s} is {o}.", "Addresses in {s} end in {o}."),
            former=("The code {o} was never given to {s}.",),
            lookup="unique",
            noun="the internet code of {s}",
            clause="whose internet code is {o}",
            query="internet code",
        ),
        Relation(
            "natural resource",
            "data",
            "value",
            ("The natural resources of {s} are {o}.", "{s} has deposits of {o}."),
            former=("{s} has no more {o}.",),
            many=True,
            noun="a natural resource of {s}",
            clause="that has deposits of {o}",
            query="natural resources",
        ),
        Relation(
            "independence",
            "history",
            "year",
            ("{s} became independent in {o}.", "The independence of {s} dates from {o}."),
            former=("{s} had hoped to be free by {o}.",),
            noun="the year in which {s} became independent",
            clause="that became independent in {o}",
            query="independence",
        ),
        Relation(
            "region",
            "history",
            "region",
            ("{s} lies in {o}.", "{s} is a country in {o}."),
            noun="the region of {s}",
            clause="that lies in {o}",
            query="region",
        ),
        Relation(
            "area",
            "data",
            "number",
            ("The area of {s} is {o} sq km.", "{s} covers {o} sq km."),
            noun="the area in sq km of {s}",
            clause="that covers {o} sq km",
            query="area",
        ),
        Relation(
            "population",
            "people",
            "number",
            ("The population of {s} is {o}.", "{s} has {o} inhabitants."),
            noun="the population of {s}",
            clause="that has {o} inhabitants",
            query="population",
        ),
        Relation(
            "coastline",
            "borders",
            "number",
            ("The coastline of {s} measures {o} km.", "{s} has {o} km of coast."),
            noun="the length in km of the coastline of {s}",
            clause="that has {o} km of coast",
            query="coastline",
        ),
    )
}

EDITION = "2015"
"""The year whose facts the embedded web states; every question about real facts carries it."""
