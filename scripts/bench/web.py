"""Measure the embedded web: `python -m scripts.bench.web [--pages 10000] [--calls 2000]`.

Pages per second indexed, then milliseconds a search and a read, side by side for the bare index, the real clients in
memory and the real clients over sockets, one call after another and 32 at a time. Where tantivy is installed (it is no
dependency) the same pages and queries are put to it, one thread, one segment, our words.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import httpx

from data_synthesis.pages import render_pages
from data_synthesis.world import generate_world
from inference.tools.config import WebToolsConfig
from inference.tools.toolbox import Toolbox, build_tools
from inference.web.index import PageIndex
from inference.web.recorded_web import Page, RecordedWeb
from inference.web.server import MEMORY_BASE, WebServer, memory_transport
from inference.web.text import content_words, sentences, words

WIDTH = 32
_HITS = 3


def generated_pages(count: int) -> list[Page]:
    """`count` pages of generated worlds, in the order of their addresses."""
    found: dict[str, Page] = {}
    seed = 0
    while len(found) < count:
        for page in render_pages(generate_world(seed, 100), seed):
            found.setdefault(page.url, Page(page.url, page.title, page.text, page.links))
        seed += 1
    return [found[url] for url in sorted(found)[:count]]


def queries(pages: Sequence[Page], count: int) -> list[str]:
    """Words of a sentence, the order changed, and the title of the page it stands on."""
    rng = random.Random(0)
    made = []
    for page in rng.choices(pages, k=count):
        said = rng.choice(sentences(page.text)).split()
        made.append(" ".join([*rng.sample(said, min(5, len(said))), page.title]))
    return made


def timed(calls: Iterator[Callable[[], object]]) -> list[float]:
    """Milliseconds of each call."""
    spent = []
    for call in calls:
        began = time.perf_counter()
        call()
        spent.append((time.perf_counter() - began) * 1e3)
    return spent


def row(name: str, spent: Sequence[float]) -> None:
    ordered = sorted(spent)
    p99 = ordered[int(len(ordered) * 0.99)]
    print(f"  {name:38} {statistics.mean(ordered):8.3f} {ordered[len(ordered) // 2]:8.3f} {p99:8.3f}")


async def clients(name: str, tools: Toolbox, asked: Sequence[str], addresses: Sequence[str]) -> None:
    search, scrape = tools["google_search"], tools["scrape_and_extract_info"]
    calls: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "search": [lambda q=q: search.call({"q": q}) for q in asked],  # type: ignore[misc]
        "read": [
            lambda q=q, a=a: scrape.call({"url": a, "info_to_extract": q})  # type: ignore[misc]
            for q, a in zip(asked, addresses, strict=True)
        ],
    }
    async with tools:
        for kind, made in calls.items():
            await asyncio.gather(*(call() for call in made[:WIDTH]))
            serial = []
            for call in made:
                began = time.perf_counter()
                await call()
                serial.append((time.perf_counter() - began) * 1e3)
            row(f"{name}, {kind}", serial)
            began = time.perf_counter()
            for start in range(0, len(made), WIDTH):
                await asyncio.gather(*(call() for call in made[start : start + WIDTH]))
            print(f"  {f'{name}, {kind}, {WIDTH} at a time':38} {(time.perf_counter() - began) * 1e3 / len(made):8.3f}")


def tools_at(base: str, transport: httpx.AsyncBaseTransport | None) -> Toolbox:
    return build_tools(WebToolsConfig(search_url=f"{base}/search", reader_url=f"{base}/r"), transport)


def resident() -> float:
    """MiB of memory this process holds."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def index_alone(pages: Sequence[Page], asked: Sequence[str]) -> None:
    before, began = resident(), time.perf_counter()
    index = PageIndex((page.title, page.text) for page in pages)
    spent = time.perf_counter() - began
    print(f"  bm25s: {len(pages) / spent:,.0f} pages/s indexed ({spent:.2f} s, +{resident() - before:.0f} MiB)")
    row("bm25s, search", timed((lambda q=q: index.search(q, _HITS)) for q in asked))  # type: ignore[misc]


def tantivy_alone(pages: Sequence[Page], asked: Sequence[str]) -> None:
    try:
        import tantivy
    except ModuleNotFoundError:
        print("  tantivy: not installed")
        return
    before, began = resident(), time.perf_counter()
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("n", stored=True)
    builder.add_text_field("body", stored=False, tokenizer_name="whitespace", index_option="freq")
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    for n, page in enumerate(pages):
        writer.add_document(tantivy.Document(n=n, body=" ".join(words(page.title) * 2 + words(page.text))))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    spent = time.perf_counter() - began
    print(f"  tantivy: {len(pages) / spent:,.0f} pages/s indexed ({spent:.2f} s, +{resident() - before:.0f} MiB)")

    def search(query: str) -> list[int]:
        terms = [tantivy.Query.term_query(schema, "body", word, "freq") for word in content_words(query)]
        wanted = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return [searcher.doc(at).get_first("n") for _, at in searcher.search(wanted, _HITS, count=False).hits]

    row("tantivy, search", timed((lambda q=q: search(q)) for q in asked))  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=2_000)
    args = parser.parse_args()
    pages = generated_pages(args.pages)
    asked = queries(pages, args.calls)
    addresses = [page.url for page in random.Random(1).choices(pages, k=args.calls)]
    mean_words = statistics.mean(len(words(page.text)) for page in pages)
    print(f"{len(pages)} pages of {mean_words:.0f} words, {len(asked)} calls")
    print(f"  {'ms a call':38} {'mean':>8} {'median':>8} {'p99':>8}")
    index_alone(pages, asked)
    tantivy_alone(pages, asked)
    web = RecordedWeb(pages)
    asyncio.run(clients("in memory", tools_at(MEMORY_BASE, memory_transport(web)), asked, addresses))
    with WebServer(web) as server:
        asyncio.run(clients("over sockets", tools_at(server.base, None), asked, addresses))


if __name__ == "__main__":
    main()
