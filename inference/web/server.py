"""Local servers that answer as Serper and as Jina Reader do, over a recorded web.

* `POST /search` is Serper's: JSON in ({"q", "num", "page", "gl", "hl"}), JSON out ({"searchParameters", "organic":
  [{"title", "link", "snippet", "position"}]}). Any X-API-KEY is accepted. A body that cannot be used is a 400 with
  {"message", "statusCode"}.
* `GET /r/<url>` (or `GET /<url>`) is r.jina.ai's: plain text with the lines "Title:", "URL Source:" and "Markdown
  Content:". A page nobody has is, as there, a 200 whose "Warning:" line says that the target returned 404.
* `WebServer` is a `LocalServer`: on 127.0.0.1, at a port of its own; nothing outside this machine reaches it.
* `memory_transport` gives the same answers to the same clients in the same process without a socket.

A call in memory costs 0.3 to 0.6 ms, client included. Over a pooled connection it costs 1.7 ms at best and 4 to 7 ms
when the machine is busy, for client and server wait for one interpreter lock (`scripts/bench/web.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inference.local_server import LocalServer
from inference.web.recorded_web import RecordedWeb

MEMORY_BASE = "http://web.localhost"
"""Base address under which `memory_transport` answers."""
_NUM_MAX = 100


def web_app(web: RecordedWeb) -> Starlette:
    """The search and the reader API over `web`, as one ASGI application."""

    async def search(request: Request) -> Response:
        try:
            query, num, page = _search_arguments(await request.body())
        except ValueError as error:
            return JSONResponse({"message": str(error), "statusCode": 400}, status_code=400)
        return JSONResponse(search_answer(web, query, num, page))

    async def read(request: Request) -> Response:
        return PlainTextResponse(reader_answer(web, _target(request)))

    return Starlette(
        routes=[
            Route("/search", search, methods=["POST"]),
            Route("/{url:path}", read, methods=["GET"]),
        ]
    )


def search_answer(web: RecordedWeb, query: str, num: int, page: int) -> dict[str, Any]:
    organic = [
        {"title": hit.title, "link": hit.link, "snippet": hit.snippet, "position": position}
        for position, hit in enumerate(web.search(query, num, page), 1)
    ]
    return {"searchParameters": {"q": query, "type": "search", "num": num, "page": page}, "organic": organic}


def reader_answer(web: RecordedWeb, url: str) -> str:
    page = web.read(url)
    if page is None:
        return (
            f"Title: \n\nURL Source: {url}\n\nWarning: Target URL returned error 404: Not Found\n\nMarkdown Content:\n"
        )
    return f"Title: {page.title}\n\nURL Source: {page.url}\n\nMarkdown Content:\n{page.text}\n"


def _search_arguments(body: bytes) -> tuple[str, int, int]:
    """(query, num, page). Raises ValueError with the message the server answers."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    if not isinstance(data, Mapping) or not isinstance(data.get("q"), str) or not data["q"].strip():
        raise ValueError("Missing query parameter q")
    num, page = data.get("num", 10), data.get("page", 1)
    if not all(isinstance(n, int) and 1 <= n <= _NUM_MAX for n in (num, page)):
        raise ValueError(f"num and page are whole numbers from 1 to {_NUM_MAX}")
    return data["q"], num, page


def _target(request: Request) -> str:
    """The address asked for, percent-escapes as they were sent."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.decode("latin-1").partition("?")[0].removeprefix("/").removeprefix("r/")
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def memory_transport(web: RecordedWeb) -> httpx.ASGITransport:
    """Answers every request of an httpx client from `web`, whatever host it names."""
    return httpx.ASGITransport(web_app(web))


class WebServer(LocalServer):
    """Both APIs over `web`: search at `{base}/search`, reader at `{base}/r`."""

    def __init__(self, web: RecordedWeb) -> None:
        super().__init__(web_app(web))
