"""A web of recorded pages, searched and read without a network.

* Made from a corpus folder: `pages.jsonl`, one object a line with url, title, text and links (docs/corpus.md). No
  other file of the folder is opened.
* `search` ranks by `inference.web.index`; equal scores are ordered by url.
* A hit's snippet is the page's sentence that best matches the query, at most about `SNIPPET_CHARS` characters.
* `read` finds a page under every spelling of its address: http or https, case of the host, percent-escapes, a trailing
  slash, a fragment.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from configs.errors import InputError
from inference.web.index import PageIndex
from inference.web.text import best_sentences, sentences, shorten

PAGES_FILE = "pages.jsonl"
SNIPPET_CHARS = 160


@dataclass(frozen=True, slots=True)
class Page:
    url: str
    title: str
    text: str
    """Sentences; paragraphs are parted by newlines."""
    links: tuple[str, ...] = ()
    """Addresses the page links to, in order."""


@dataclass(frozen=True, slots=True)
class Hit:
    title: str
    link: str
    snippet: str


class RecordedWeb:
    def __init__(self, pages: Iterable[Page]) -> None:
        """Raises InputError when two pages have the same address."""
        self._pages = sorted(pages, key=lambda page: page.url)
        self._by_address: dict[str, Page] = {}
        for page in self._pages:
            if self._by_address.setdefault(address_key(page.url), page) is not page:
                raise InputError(f"two pages of the corpus have the address {page.url}")
        self._index = PageIndex((page.title, page.text) for page in self._pages)

    @classmethod
    def load(cls, corpus: str | Path) -> "RecordedWeb":
        """The web of a corpus folder. Raises InputError."""
        return cls(read_pages(corpus))

    def __len__(self) -> int:
        return len(self._pages)

    def search(self, query: str, num: int, page: int = 1) -> list[Hit]:
        """The `num` hits of the `page`-th page of results, best first."""
        found = self._index.search(query, num * page)[num * (page - 1) :]
        return [self._hit(self._pages[i], query) for i in found]

    def read(self, url: str) -> Page | None:
        return self._by_address.get(address_key(url))

    @staticmethod
    def _hit(page: Page, query: str) -> Hit:
        best = best_sentences(query, sentences(page.text), 1)
        return Hit(page.title, page.url, shorten(best[0], SNIPPET_CHARS) if best else "")


def address_key(url: str) -> str:
    """What all spellings of one address share."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return url
    query = f"?{unquote(parts.query)}" if parts.query else ""
    return parts.netloc.lower() + unquote(parts.path).rstrip("/") + query


def read_pages(corpus: str | Path) -> Iterator[Page]:
    """The pages of a corpus folder in file order, no two of one address. Raises InputError naming file and line."""
    path = Path(corpus) / PAGES_FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: no corpus there ({error.strerror}); `proofhound corpus build` makes one") from error
    lines = data.split(b"\n")
    if not data.strip():
        raise InputError(f"{path}: holds no page")
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            page = _page(line, f"{path}, line {number}")
            before = first.setdefault(address_key(page.url), number)
            if before != number:
                raise InputError(f"{path}: two pages have the address {page.url}, on lines {before} and {number}")
            yield page


def _page(line: bytes, where: str) -> Page:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON, so this is not a file of JSON lines") from error
    if not isinstance(row, dict):
        raise InputError(f"{where}: not a JSON object")
    for key in ("url", "title", "text"):
        if not isinstance(row.get(key), str):
            raise InputError(f'{where}: "{key}" is missing or not text')
    links = row.get("links", [])
    if not isinstance(links, list) or not all(isinstance(link, str) for link in links):
        raise InputError(f'{where}: "links" is not a list of addresses')
    if not row["url"].strip():
        raise InputError(f'{where}: "url" is empty')
    return Page(_clean(row["url"]), _clean(row["title"]), _clean(row["text"]), tuple(_clean(link) for link in links))


def _clean(text: Any) -> str:
    """Lone surrogates, which JSON can spell and UTF-8 cannot, become question marks."""
    return str(text).encode("utf-8", "replace").decode("utf-8")
