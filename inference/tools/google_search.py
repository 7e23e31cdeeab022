"""`google_search`: Serper's search API.

* Each hit is shown as "[i] title | link" and, on the next line, its snippet.
* Nothing found with quotes in the query: asked again without them. Still nothing: "No results.", which is no error.
* Arguments that do not fit (a query longer than the search takes, too) give an error result that says what is
  expected; nothing is sent.
* A server that fails after retries, refuses the key or answers in another shape (an error in a 200, too) is
  `ToolUnavailable`.
* A snippet that looks like a hit of its own is marked as text, so that no page can put words into another's mouth.
"""

import json
import re
from typing import Any

from pydantic import Field

from configs.errors import ToolUnavailable
from inference.llm.protocol import ToolSpec
from inference.tools.arguments import Arguments, read_arguments
from inference.tools.http import Fetcher, Reply
from inference.tools.protocol import ToolResult

SPEC = ToolSpec(
    name="google_search",
    description="Search the web. Returns titles, links and snippets of the best matching pages.",
    parameters={
        "type": "object",
        "properties": {
            "q": {"type": "string", "description": "What to search for."},
            "num": {"type": "integer", "description": "Number of results."},
            "page": {"type": "integer", "description": "Page of results, from 1."},
            "gl": {"type": "string", "description": "Country of the search, a two-letter code such as us."},
            "hl": {"type": "string", "description": "Language of the results, a code such as en."},
            "tbs": {"type": "string", "description": "Time filter, such as qdr:y for the past year."},
        },
        "required": ["q"],
        "additionalProperties": False,
    },
)
NO_RESULTS = "No results."
_FORGED = re.compile(r"\[\d+\] .* \| \S+$")
_USAGE = 'q (what to search for) and, if wanted, num, page, gl, hl, tbs, as in {"q": "capital of Kenya"}'
_QUOTES = str.maketrans("", "", '"\u201c\u201d\u00ab\u00bb')


class SearchArguments(Arguments):
    q: str = Field(min_length=1, max_length=2048)
    num: int | None = Field(default=None, ge=1, le=100)
    page: int | None = Field(default=None, ge=1, le=100)
    gl: str | None = None
    hl: str | None = None
    tbs: str | None = None


class GoogleSearch:
    def __init__(self, url: str, key: str | None, num_results: int, fetcher: Fetcher) -> None:
        """`key`: sent as X-API-KEY; None for a server that asks for none."""
        self._url = url
        self._key = key
        self._headers = {"X-API-KEY": key} if key else {}
        self._num_results = num_results
        self._fetcher = fetcher

    @property
    def spec(self) -> ToolSpec:
        return SPEC

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        try:
            asked = read_arguments(SearchArguments, arguments, _USAGE)
        except ValueError as error:
            return ToolResult(str(error), is_error=True)
        body = {"num": self._num_results} | asked.model_dump(exclude_none=True)
        hits = await self._hits(body)
        plain = " ".join(asked.q.translate(_QUOTES).split())
        if not hits and plain not in ("", asked.q):
            hits = await self._hits(body | {"q": plain})
        shown = [_show(i, hit) for i, hit in enumerate(hits[: body["num"]], 1)]
        return ToolResult("\n".join(shown) if shown else NO_RESULTS)

    async def _hits(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        reply = await self._fetcher.send("POST", self._url, headers=self._headers, json=body, key=self._key)
        if reply.status != 200:
            raise ToolUnavailable(f"the search server answered {reply.status}: {_complaint(reply)}")
        try:
            answer = json.loads(reply.text)
            if not {"organic", "searchParameters"} & answer.keys():
                raise ToolUnavailable(f"the search server answered without results: {_complaint(reply)}")
            return [hit for hit in answer.get("organic", []) if isinstance(hit.get("link"), str)]
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise ToolUnavailable("the search server's answer is not in Serper's form") from error


def _show(position: int, hit: dict[str, Any]) -> str:
    title, snippet = (" ".join(str(hit.get(key) or "").split()) for key in ("title", "snippet"))
    if _FORGED.match(snippet):
        snippet = f"... {snippet}"
    return f"[{position}] {title} | {hit['link']}\n{snippet}".rstrip()


def _complaint(reply: Reply) -> str:
    """What the server says is wrong, on one line."""
    try:
        message = json.loads(reply.text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = reply.text
    return " ".join(str(message).split())[:200]
