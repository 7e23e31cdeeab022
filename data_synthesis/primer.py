"""What the tiny base is pre-trained on: pages, and single turns of copying and quoting. Never an episode.

`documents` gives pages as plain text. `exercises` gives (material and request, reply) pairs over search results and
pages: quote the sentence that states a fact before naming it, say which hit carries a title, copy a line or an
address, list the names in a sentence, notice that something is not there. No plan, no tool call, no second turn.

Both are endless, made from freshly generated worlds, and pure functions of their seed.
"""

import itertools
import random
from collections.abc import Iterator

from data_synthesis.names import Pools
from data_synthesis.pages import Page, render_pages
from data_synthesis.reader import read_sentence
from data_synthesis.relations import RELATIONS
from data_synthesis.world import generate_world


def worlds(seed: int, pools: Pools, countries: int = 24) -> Iterator[list[Page]]:
    """The pages of one fresh world after another."""
    for number in itertools.count():
        world = seed * 1_000_000 + number
        yield list(render_pages(generate_world(world, countries, pools), world))


def documents(seed: int, pools: Pools) -> Iterator[str]:
    """Pages as text: title, then a sentence a line."""
    for pages in worlds(seed, pools):
        rng = random.Random(f"documents/{pages[0].url}")
        for page in rng.sample(pages, min(40, len(pages))):
            yield f"{page.title} | {page.url}\n{page.text}"


def exercises(seed: int, pools: Pools) -> Iterator[tuple[str, str]]:
    """(what the user says, the reply)."""
    for pages in worlds(seed, pools):
        rng = random.Random(f"exercises/{pages[0].url}")
        for _ in range(120):
            chosen = rng.sample(pages, rng.choice((1, 3, 3)))
            pair = _exercise(chosen, rng)
            if pair is not None:
                yield pair


def _exercise(pages: list[Page], rng: random.Random) -> tuple[str, str] | None:
    hits = [(p, rng.choice(p.text.split("\n"))) for p in pages]
    if len(pages) == 1:
        page = pages[0]
        lines = page.text.split("\n")[:5]
        material = f"{page.title}\n" + "\n".join(lines)
        sentences = [(line, page.url) for line in lines]
        request, reply = rng.choice((*_LONG, *_LONG, _quote, _quote_subject, _copy, _list))(sentences, rng)
    else:
        material = "\n".join(f"[{i}] {p.title} | {p.url}\n{line}" for i, (p, line) in enumerate(hits, start=1))
        sentences = [(line, p.url) for p, line in hits]
        if rng.random() < 0.2:
            request, reply = _hit(pages, rng)
        else:
            request, reply = rng.choice((*_LONG, *_LONG, _quote, _quote, _quote_subject, _copy))(sentences, rng)
    return (f"{material}\n{request}", reply) if reply else None


Sentences = list[tuple[str, str]]


def _quote(sentences: Sentences, rng: random.Random) -> tuple[str, str]:
    """Ask for what a subject has."""
    line, url = rng.choice(sentences)
    facts = read_sentence(line)
    if not facts:
        return "", ""
    subject, relation = facts[0].subject, RELATIONS[facts[0].relation]
    if rng.random() < 0.15:
        missing = rng.choice([r for r in RELATIONS.values() if r.topic != relation.topic])
        return f"{missing.query} of {subject}?", "Not there."
    found = "; ".join(f.object for f in facts)
    return f"{relation.query} of {subject}?", f'"{line}" ({url}) So it is {found}.'


def _quote_subject(sentences: Sentences, rng: random.Random) -> tuple[str, str]:
    """Ask whose object something is."""
    line, url = rng.choice(sentences)
    facts = read_sentence(line)
    if not facts:
        return "", ""
    fact = rng.choice(facts)
    relation = RELATIONS[fact.relation]
    return f"The country {relation.clause.format(o=fact.object)}?", f'"{line}" ({url}) So it is {fact.subject}.'


def _copy(sentences: Sentences, rng: random.Random) -> tuple[str, str]:
    """Ask for a line that begins with certain words, or for the address it stands at."""
    line, url = rng.choice(sentences)
    start = " ".join(line.split(" ")[: rng.randint(2, 3)])
    if rng.random() < 0.3:
        return f"Where does it say: {line}", url
    return f"Copy the line that begins {start}", f'"{line}" | {url}'


def _list(sentences: Sentences, rng: random.Random) -> tuple[str, str]:
    """Ask for the names a sentence lists, each on a line."""
    many = [line for line, _ in sentences if "; " in line and len(read_sentence(line)) > 1]
    if not many:
        return "", ""
    facts = read_sentence(rng.choice(many))
    relation = RELATIONS[facts[0].relation]
    names = list(dict.fromkeys(f.object for f in facts))
    rows = [f"- {relation.claim.format(s=facts[0].subject, o=name)}" for name in names]
    return f"List {relation.query} of {facts[0].subject}.", "\n".join(rows)


def _evidence(sentences: Sentences, rng: random.Random) -> tuple[str, str]:
    """Ask for every fact, each with the words it rests on and their address."""
    rows = []
    for line, url in sentences:
        for fact in read_sentence(line)[:1]:
            claim = RELATIONS[fact.relation].claim.format(s=fact.subject, o=fact.object)
            rows.append(f'- {claim} | "{line}" | {url}')
    return "State the facts with evidence.", "\n".join(rng.sample(rows, len(rows)))


def _repeat(sentences: Sentences, rng: random.Random) -> tuple[str, str]:
    """Ask for all lines, in another order, each with its address."""
    return "Copy all lines.", "\n".join(f'"{line}" ({url})' for line, url in rng.sample(sentences, len(sentences)))


_LONG = (_evidence, _repeat)


def _hit(pages: list[Page], rng: random.Random) -> tuple[str, str]:
    """Ask which hit has a title."""
    at = rng.randrange(len(pages))
    return f"Which hit is {pages[at].title}?", f"Hit {at + 1}: {pages[at].url}"
