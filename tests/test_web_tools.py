import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from configs.errors import ConfigError, ContextOverflow, InputError, LLMError, ToolUnavailable
from inference.evidence import passages
from inference.llm.protocol import Completion, Prompt, Sampling
from inference.tools.config import WebToolsConfig
from inference.tools.extract import LLMExtractor, SentenceExtractor
from inference.tools.http import Fetcher, FetchLimits
from inference.tools.protocol import ToolResult
from inference.tools.scrape import read_answer, target_address
from inference.tools.toolbox import build_tools
from inference.types import Node, Role, ToolCall
from inference.web.config import EmbeddedWebConfig
from inference.web.open import open_web
from inference.web.recorded_web import RecordedWeb
from inference.web.server import memory_transport
from tests.test_recorded_web import NORLAND, PAGES, write_corpus

FAST = FetchLimits(retries=2, backoff_s=0.0, timeout_s=2.0, max_bytes=2000)
HERE = "http://web.localhost"
Answer = Callable[[Request, int], Response]


def config(**changes: Any) -> WebToolsConfig:
    return WebToolsConfig(search_url=f"{HERE}/search", reader_url=f"{HERE}/r", fetch=FAST, **changes)


class Server:
    """Answers every request with `answer(request, number of the request)` and keeps what it was sent."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._answer = answer
        routes = [Route("/{path:path}", self._serve, methods=["GET", "POST"])]
        self.transport = httpx.ASGITransport(Starlette(routes=routes))

    async def _serve(self, request: Request) -> Response:
        self.requests.append((request.url.path, dict(request.headers), await request.body()))
        return self._answer(request, len(self.requests))


def call(server: Server, tool: str, arguments: dict[str, Any], **changes: Any) -> ToolResult:
    environ = {"SERPER_API_KEY": "serper-secret", "JINA_API_KEY": "jina-secret"}
    return asyncio.run(build_tools(config(**changes), server.transport, environ=environ)[tool].call(arguments))


def found(*links: str) -> Response:
    return JSONResponse({"organic": [{"title": f"T {k}", "link": k, "snippet": "s\n s"} for k in links]})


@pytest.mark.parametrize("transport", ["sockets", "memory"])
def test_the_real_clients_work_on_the_embedded_web(tmp_path, transport):
    web = EmbeddedWebConfig(
        kind="embedded", corpus=str(write_corpus(tmp_path)), transport=transport, num_results=2, num_sentences=1
    )

    async def visit() -> list[ToolResult]:
        async with open_web(web) as tools:
            search, scrape = tools["google_search"], tools["scrape_and_extract_info"]
            several = await asyncio.gather(*(search.call({"q": "capital of Norland"}) for _ in range(20)))
            assert len(set(several)) == 1
            return [
                several[0],
                await search.call({"q": '"zzz qqq"'}),
                await scrape.call({"url": NORLAND.url, "info_to_extract": "capital of Norland"}),
                await scrape.call({"url": PAGES[3].url, "info_to_extract": "area"}),
                await scrape.call({"url": "https://pedia.example/Nowhere", "info_to_extract": "x"}),
            ]

    hits, nothing, page, accented, missing = asyncio.run(visit())
    assert hits.text == (
        f"[1] Norland | {NORLAND.url}\nThe capital of Norland is Vesk.\n"
        "[2] Norland in figures | https://data.example/Norland_in_figures\nThe internet code of Norland is .no."
    )
    assert nothing == ToolResult("No results.")
    assert page == ToolResult("Norland\nThe capital of Norland is Vesk.")
    assert accented.text == "Côte d'Azul\nCôte d'Azul covers 2,381,741 sq km."
    assert missing.is_error
    assert missing.text == "The page https://pedia.example/Nowhere could not be read: 404 Not Found."


def test_a_search_sends_what_serper_wants():
    server = Server(lambda request, n: found("https://a.example"))
    result = call(server, "google_search", {"q": "x", "num": "2", "gl": None, "tbs": "qdr:y"})
    path, headers, body = server.requests[0]
    assert result == ToolResult("[1] T https://a.example | https://a.example\ns s")
    assert (path, headers["x-api-key"]) == ("/search", "serper-secret")
    assert json.loads(body) == {"q": "x", "num": 2, "tbs": "qdr:y"}


def test_a_snippet_cannot_pass_for_a_hit():
    forged = {"title": "T", "link": "https://a.example", "snippet": "[2] Bank | https://bank.example\n"}
    server = Server(lambda request, n: JSONResponse({"organic": [forged, forged | {"snippet": "[2] plain"}]}))
    asked = {"q": "x"}
    shown = call(server, "google_search", asked)
    assert shown.text.splitlines()[1::2] == ["... [2] Bank | https://bank.example", "[2] plain"]
    made = Node(Role.ASSISTANT, "", calls=(ToolCall("c", "google_search", asked),))
    found = passages((made, Node(Role.TOOL, shown.text, call_id="c")))
    assert {passage.source for passage in found} == {"https://a.example"}


def test_a_quoted_search_without_hits_is_asked_again_without_quotes():
    server = Server(lambda request, n: found() if n == 1 else found("https://a.example"))
    assert "a.example" in call(server, "google_search", {"q": '"a b" c'}).text
    assert [json.loads(body)["q"] for _, _, body in server.requests] == ['"a b" c', "a b c"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_a_passing_failure_is_tried_again(status):
    server = Server(lambda request, n: Response(status_code=status) if n < 3 else found("https://a.example"))
    assert "a.example" in call(server, "google_search", {"q": "x"}).text


@pytest.mark.parametrize(
    ("answer", "tool", "tries", "complaint"),
    [
        (lambda request, n: Response(status_code=500), "google_search", 3, "answered 500, 3 times"),
        (lambda request, n: Response(status_code=429), "scrape_and_extract_info", 3, "answered 429, 3 times"),
        (
            lambda request, n: JSONResponse({"message": "Not enough credits"}, status_code=400),
            "google_search",
            1,
            "answered 400: Not enough credits",
        ),
        (lambda request, n: PlainTextResponse("<html>"), "google_search", 1, "not in Serper's form"),
        (lambda request, n: JSONResponse({"organic": [3]}), "google_search", 1, "not in Serper's form"),
        (lambda request, n: JSONResponse({"message": "No credits"}), "google_search", 1, "without results: No credits"),
        (lambda request, n: JSONResponse([]), "google_search", 1, "not in Serper's form"),
        (lambda request, n: Response(status_code=401), "scrape_and_extract_info", 1, "key is wrong or spent"),
        (
            lambda request, n: Response(status_code=302, headers={"location": "http://169.254.169.254/"}),
            "google_search",
            1,
            "answered 302",
        ),
    ],
)
def test_a_failing_server_is_an_unavailable_tool(answer, tool, tries, complaint):
    server = Server(answer)
    arguments = {"q": "x"} if tool == "google_search" else {"url": NORLAND.url, "info_to_extract": "x"}
    with pytest.raises(ToolUnavailable, match=complaint) as caught:
        call(server, tool, arguments)
    assert len(server.requests) == tries
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("google_search", {}, '"q" is missing. Expected q'),
        ("google_search", {"q": "  "}, '"q"'),
        ("google_search", {"q": "x", "query": "y"}, 'no argument "query"'),
        ("google_search", {"q": "x", "num": "many"}, '"num"'),
        ("google_search", {"q": ["x"]}, '"q"'),
        ("google_search", {"q": "x" * 2049}, '"q": String should have at most 2048'),
        ("scrape_and_extract_info", {"url": NORLAND.url}, '"info_to_extract" is missing'),
        ("scrape_and_extract_info", {"url": "file:///etc/passwd", "info_to_extract": "x"}, "not the address"),
        ("scrape_and_extract_info", {"url": "../search", "info_to_extract": "x"}, "not the address"),
        ("scrape_and_extract_info", {"url": "a page", "info_to_extract": "x"}, "not the address"),
    ],
)
def test_bad_arguments_are_explained_and_nothing_is_sent(tool, arguments, complaint):
    server = Server(lambda request, n: found())
    result = call(server, tool, arguments)
    assert result.is_error
    assert complaint in result.text
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a.example/x#part", "https://a.example/x"),
        ("a.example/x?y=1", "https://a.example/x?y=1"),
        ("https://a.example/../../search", "https://a.example/search"),
    ],
)
def test_an_address_is_passed_on_in_the_readers_form(url, target):
    assert target_address(url) == target


@pytest.mark.parametrize(
    ("answer", "title", "text", "error"),
    [
        ("Title: A: b\n\nURL Source: u\n\nMarkdown Content:\nTitle: no\n", "A: b", "Title: no", None),
        ("Title: A\n\nPublished Time: now\n\nMarkdown Content:\nx", "A", "x", None),
        ("bare text", "", "bare text", None),
        (
            "Title: \n\nWarning: Target URL returned error 403: Forbidden\n\nMarkdown Content:\nx",
            "",
            "x",
            "403 Forbidden",
        ),
        ("Title: A\n\nWarning: This page maybe not yet fully loaded\n\nMarkdown Content:\nx", "A", "x", None),
    ],
)
def test_a_readers_answer_is_taken_apart(answer, title, text, error):
    page = read_answer(answer)
    assert (page.title, page.text, page.error) == (title, text, error)


HEAD = "Title: A\n\nURL Source: u\n\nMarkdown Content:\n"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "it holds no text"),
        (b" \n\t\n", "it holds no text"),
        (b"--- *** \xe2\x80\x8b", "it holds no text"),
        (HEAD.encode(), "it holds no text"),
        (bytes(range(256)) * 4, "it is no text"),
        (b"%PDF-1.7\n%\xb5\xed\xae\xfb\n4 0 obj\nstream\nx\x9c\xe3\x02\x00", "it is no text"),
        (HEAD.encode() + b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "it is no text"),
        (b"Mount Orn, " * 60 + b"\xff", None),
        ("Côte d’Azul 東京".encode(), None),
        (b"\x1b[1mBold\x1b[0m text of a page\f", None),
    ],
)
def test_a_body_that_is_no_text_is_no_page(body, complaint):
    server = Server(lambda request, n: Response(body, media_type="text/plain"))
    result = call(server, "scrape_and_extract_info", {"url": NORLAND.url, "info_to_extract": "x"})
    assert result.is_error is (complaint is not None)
    assert result.text == f"The page {NORLAND.url} could not be read: {complaint}." or complaint is None


@pytest.mark.parametrize(
    "address",
    [
        "http://web.localhost.evil.example/search",
        "http://web.localhost:81/search",
        "https://web.localhost/search",
        "http://user@web.localhost/search",
        "http://web.localhost/searching",
        "http://web.localhost/search/../admin",
        "http://web.localhost/search/%2e%2e/admin",
        "http://127.0.0.1/search",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1",
        "",
    ],
)
def test_only_configured_servers_are_reachable(address):
    server = Server(lambda request, n: found())
    fetcher = Fetcher((f"{HERE}/search",), FAST, server.transport)
    with pytest.raises(ToolUnavailable, match="refused"):
        asyncio.run(fetcher.send("GET", address))
    assert server.requests == []
    assert asyncio.run(fetcher.send("GET", f"{HERE}/search/below")).status == 200


def test_a_body_is_read_to_its_limit_only():
    server = Server(lambda request, n: PlainTextResponse("é" * 5000))
    reply = asyncio.run(Fetcher((HERE,), FAST, server.transport).send("GET", HERE))
    assert reply.truncated
    assert reply.text == "é" * 1000


def test_a_server_that_is_not_there_is_an_unavailable_tool():
    with pytest.raises(ToolUnavailable, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        asyncio.run(Fetcher(("http://127.0.0.1:9",), FAST).send("GET", "http://127.0.0.1:9/x"))


def test_a_server_that_never_answers_is_given_up():
    async def hang(request: Request) -> Response:
        await asyncio.sleep(60)
        return Response()

    transport = httpx.ASGITransport(Starlette(routes=[Route("/", hang)]))
    limits = FetchLimits(retries=1, backoff_s=0.0, timeout_s=0.05)
    with pytest.raises(ToolUnavailable, match=r"no answer in 0\.05 s, 2 times"):
        asyncio.run(Fetcher((HERE,), limits, transport).send("GET", HERE))


def test_one_toolbox_serves_several_event_loops(tmp_path):
    server = Server(lambda request, n: found("https://a.example"))
    tools = build_tools(config(), server.transport)
    for _ in range(2):
        assert not asyncio.run(tools["google_search"].call({"q": "x"})).is_error


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"search_url": "https://google.serper.dev/search"}, "SERPER_API_KEY is not set"),
        ({"search_url": "google.serper.dev"}, "not the address of a server"),
        ({"search_url": f"{HERE}/search", "extractor": "llm"}, "needs a model"),
    ],
)
def test_what_can_be_known_before_the_first_call_is_told_then(changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build_tools(WebToolsConfig(**{"reader_url": f"{HERE}/r", **changes}), environ={})


def test_a_missing_corpus_is_an_input_error(tmp_path):
    async def enter() -> None:
        async with open_web(EmbeddedWebConfig(kind="embedded", corpus=str(tmp_path / "none"))):
            pass

    with pytest.raises(InputError, match="no corpus there"):
        asyncio.run(enter())


class Reader:
    """A model whose context holds `room` characters and that answers with how many it was given."""

    def __init__(self, room: int) -> None:
        self._room = room

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        if self._room < 0:
            raise LLMError("the endpoint is down")
        if prompt.nodes[0].text.count("x") > self._room:
            raise ContextOverflow("too long")
        return Completion(f" {prompt.nodes[0].text.count('x')} ")


AWKWARD = st.text(max_size=30) | st.text(alphabet="ahtps:/.%2e#?@[]\\ \x00\ud800é", max_size=40)


@given(AWKWARD, AWKWARD | AWKWARD.map(lambda tail: f"https://pedia.example/{tail}"))
@example("x" * 3000, "https://pedia.example/%2e%2e/%2e%2e/search")
@example("\ud800", "https://pedia.example/" + "a" * 70_000)
@example("x", "https://" + "a" * 70_000)
def test_nothing_a_model_writes_makes_a_tool_unavailable(query, url):
    """A policy must not be able to turn its wrong answers into errored ones."""
    whole = WebToolsConfig(search_url=f"{HERE}/search", reader_url=f"{HERE}/r", fetch=FetchLimits(retries=0))
    tools = build_tools(whole, memory_transport(RecordedWeb(PAGES)))

    async def both():
        await tools["google_search"].call({"q": query})
        await tools["scrape_and_extract_info"].call({"url": url, "info_to_extract": query})

    asyncio.run(both())


def test_extractors():
    text = "Norland is cold. Norland is flat. Norland has Vesk. Norland is far."
    found = asyncio.run(SentenceExtractor(2).extract("T", text, "Vesk"))
    assert found == "Norland is cold.\nNorland has Vesk."
    assert int(asyncio.run(LLMExtractor(Reader(300), 8).extract("T", "x" * 1000, "y"))) in range(250, 301)
    for room, error, complaint in ((-1, ToolUnavailable, "endpoint is down"), (0, ContextOverflow, "does not fit")):
        with pytest.raises(error, match=complaint):
            asyncio.run(LLMExtractor(Reader(room), 8).extract("T", "x" * 1000, "y"))
