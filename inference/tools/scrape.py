"""`scrape_and_extract_info`: Jina Reader, then an extractor.

* The result is the page's title on a line, then what the extractor found (`inference.tools.extract`).
* A page that does not exist, cannot be read, is empty or no text, an address that is none, arguments that do not fit:
  an error result in plain words. Jina answers 200 for a missing page and says so in a "Warning:" line; that is read.
* A server that fails after retries or refuses the key is `ToolUnavailable`. Nothing that a model can write is.
* The page itself is never fetched from here, only the reader is, whatever address the model gives.
"""

import re
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import Field

from configs.errors import ToolUnavailable
from inference.llm.protocol import ToolSpec
from inference.tools.arguments import Arguments, read_arguments
from inference.tools.extract import Extractor
from inference.tools.http import Fetcher
from inference.tools.protocol import ToolResult

SPEC = ToolSpec(
    name="scrape_and_extract_info",
    description="Read a web page. Returns its title and what it says about the information asked for.",
    parameters={
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "Address of the page."},
            "info_to_extract": {"type": "string", "description": "What to look for on the page."},
        },
        "required": ["url", "info_to_extract"],
        "additionalProperties": False,
    },
)
_USAGE = "url (address of the page) and info_to_extract (what to look for on it)"
_REFUSED = frozenset({401, 402, 403})
_LONGEST_ADDRESS = 8000
_MOST_UNREADABLE = 0.02
"""Share of characters that no text has (control characters, bytes that are no UTF-8) from which on a body is none."""
_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffd]")
_HOST = re.compile(r"[^.]+(?:\.[^.]+)*\.?")
_HEADER = "Markdown Content:"
_FIELD = re.compile(r"^(Title|URL Source|Warning): ?(.*)$", re.MULTILINE)
_TARGET_ERROR = re.compile(r"Target URL returned error (\d+)(?:: ?(.*))?")


class ScrapeArguments(Arguments):
    url: str = Field(min_length=1)
    info_to_extract: str = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class ReaderPage:
    title: str
    text: str
    error: str | None = None
    """What the page's own server answered in place of the page, such as "404 Not Found"."""


class Scrape:
    def __init__(self, url: str, key: str | None, page_chars: int, extractor: Extractor, fetcher: Fetcher) -> None:
        """`url`: the reader's. `key`: its bearer token, or None."""
        self._url = url.rstrip("/")
        self._key = key
        self._headers = {"Accept": "text/plain"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._page_chars = page_chars
        self._extractor = extractor
        self._fetcher = fetcher

    @property
    def spec(self) -> ToolSpec:
        return SPEC

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        try:
            asked = read_arguments(ScrapeArguments, arguments, _USAGE)
            target = target_address(asked.url)
        except ValueError as error:
            return ToolResult(str(error), is_error=True)
        reply = await self._fetcher.send("GET", f"{self._url}/{target}", headers=self._headers, key=self._key)
        if reply.status in _REFUSED:
            raise ToolUnavailable(f"the reader server refused the request ({reply.status}): its key is wrong or spent")
        if reply.status != 200:
            return _unreadable(asked.url, f"the reader answered {reply.status}")
        page = read_answer(reply.text)
        if page.error is not None:
            return _unreadable(asked.url, page.error)
        if not any(character.isalnum() for character in page.text):
            return _unreadable(asked.url, "it holds no text")
        if len(_UNREADABLE.findall(page.text)) > _MOST_UNREADABLE * len(page.text):
            return _unreadable(asked.url, "it is no text")
        found = await self._extractor.extract(page.title, page.text[: self._page_chars], asked.info_to_extract)
        return ToolResult(f"{page.title or asked.url}\n{found}")


def target_address(url: str) -> str:
    """The address as the reader takes it, without fragment. Raises ValueError in words for the model."""
    try:
        parsed = httpx.URL(url if "://" in url else f"https://{url}")
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    named = _HOST.fullmatch(parsed.host) and ("://" in url or "." in parsed.host)
    # What still climbs was percent-escaped: behind the reader's address it would lead to another of its services.
    named = named and len(url) <= _LONGEST_ADDRESS and ".." not in parsed.path.split("/")
    if parsed.scheme not in ("http", "https") or not named or any(c.isspace() for c in url):
        raise ValueError(f"{url[:200]!r} is not the address of a web page. Give a full one, as search results do.")
    return str(parsed.copy_with(fragment=None))


def read_answer(text: str) -> ReaderPage:
    """The parts of a reader's answer; an answer without its header lines is all text."""
    head, header, body = text.partition(_HEADER)
    if not header:
        return ReaderPage("", text.strip())
    fields = {name: value.strip() for name, value in _FIELD.findall(head)}
    failed = _TARGET_ERROR.search(fields.get("Warning", ""))
    error = " ".join(part for part in failed.groups() if part) if failed else None
    return ReaderPage(fields.get("Title", ""), body.strip(), error)


def _unreadable(url: str, why: str) -> ToolResult:
    return ToolResult(f"The page {url} could not be read: {why}.", is_error=True)
