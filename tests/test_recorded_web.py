import asyncio
import json
from pathlib import Path

import httpx
import pytest

from configs.errors import InputError
from inference.web.recorded_web import Hit, Page, RecordedWeb
from inference.web.server import MEMORY_BASE, WebServer, memory_transport
from inference.web.text import best_sentences, sentences, shorten, words

NORLAND = Page(
    "https://pedia.example/Norland",
    "Norland",
    "Norland lies in the north.\nThe capital of Norland is Vesk.\nMt. Kea, named by Gen. Ian B. Ash, rises there.",
)
PAGES = [
    NORLAND,
    Page("https://data.example/Norland_in_figures", "Norland in figures", "The internet code of Norland is .no."),
    Page("https://data.example/Sudland_in_figures", "Sudland in figures", "The internet code of Sudland is .dz."),
    Page("https://trade.example/C%C3%B4te?part=2", "Côte d'Azul", "Côte d'Azul covers 2,381,741 sq km."),
    Page("https://b.example/twin", "Twin", "Two pages say the very same thing."),
    Page("https://a.example/twin", "Twin", "Two pages say the very same thing."),
]


def write_corpus(folder: Path, pages: list[Page] = PAGES) -> Path:
    rows = [{"url": p.url, "title": p.title, "text": p.text, "links": list(p.links)} for p in pages]
    (folder / "pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("capital of Norland", "https://pedia.example/Norland"),
        ("NORLAND'S capitals", "https://pedia.example/Norland"),
        ("internet code .dz", "https://data.example/Sudland_in_figures"),
        ("cote d azul", "https://trade.example/C%C3%B4te?part=2"),
        ("2381741", "https://trade.example/C%C3%B4te?part=2"),
    ],
)
def test_search_finds(query, best):
    assert RecordedWeb(PAGES).search(query, 3)[0].link == best


def test_search_is_the_same_whatever_the_order_of_pages_and_words():
    one, other = RecordedWeb(PAGES), RecordedWeb(reversed(PAGES))
    found = one.search("the same thing of Norland in figures", 9)
    assert len(found) == 5
    assert found == other.search("figures in Norland the of thing same", 9)


def test_equal_pages_come_in_the_order_of_their_addresses():
    assert [hit.link for hit in RecordedWeb(PAGES).search("very same thing", 2)] == [
        "https://a.example/twin",
        "https://b.example/twin",
    ]
    assert [hit.link for hit in RecordedWeb(PAGES).search("very same thing", 1, page=2)] == ["https://b.example/twin"]


@pytest.mark.parametrize("query", ["zzz", "", "?!", "of the"])
def test_a_query_nothing_matches_finds_nothing_or_only_pages_that_hold_its_words(query):
    held = set(words(query))
    for hit in RecordedWeb(PAGES).search(query, 9):
        page = RecordedWeb(PAGES).read(hit.link)
        assert page is not None
        assert held & set(words(page.title + " " + page.text))


def test_a_snippet_is_the_best_sentence_cut_at_a_word():
    assert RecordedWeb([NORLAND]).search("Norland capital", 1) == [
        Hit("Norland", NORLAND.url, "The capital of Norland is Vesk.")
    ]
    long = "Exports: " + "iron ore, " * 40 + "salt."
    snippet = RecordedWeb([Page("u", "T", long)]).search("exports", 1)[0].snippet
    assert len(snippet) in range(150, 161)
    assert long.startswith(snippet.removesuffix("...") + " ")


def test_sentences_are_not_cut_at_abbreviations():
    assert sentences(NORLAND.text)[2] == "Mt. Kea, named by Gen. Ian B. Ash, rises there."
    assert sentences('He left. "Why?" She knew. 3.5 km') == ("He left.", '"Why?"', "She knew.", "3.5 km")


def test_best_sentences_keep_page_order_and_prefer_rare_words():
    lines = ["Norland is cold.", "Norland is flat.", "Norland has Vesk.", "Norland is far."]
    assert best_sentences("Vesk of Norland", lines, 2) == ["Norland is cold.", "Norland has Vesk."]
    assert best_sentences("nothing", lines, 9) == lines


@pytest.mark.parametrize("limit", [4, 10, 30])
def test_shorten_never_exceeds_its_limit(limit):
    assert len(shorten("word " * 20, limit)) <= limit
    assert len(shorten("w" * 50, limit)) <= limit


@pytest.mark.parametrize(
    "spelling",
    [
        "https://trade.example/C%C3%B4te?part=2",
        "http://TRADE.example/Côte/?part=2",
        "https://trade.example/C%c3%b4te?part=2#top",
    ],
)
def test_read_knows_every_spelling_of_an_address(spelling):
    page = RecordedWeb(PAGES).read(spelling)
    assert page is not None
    assert page.title == "Côte d'Azul"


@pytest.mark.parametrize("address", ["https://trade.example/C", "", "https://[", "pedia.example"])
def test_read_of_an_unknown_address_is_none(address):
    assert RecordedWeb(PAGES).read(address) is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"url": "u", "title": "t", "text": "x"}\n# Heading\n', "line 2: not JSON"),
        (b'{"url": "u", "title": "t"}\n', 'line 1: "text" is missing'),
        (b'["u"]\n', "line 1: not a JSON object"),
        (b'{"url": "u", "title": "t", "text": "\xff"}\n', "line 1: not JSON"),
        (b'{"url": "u", "title": "t", "text": "x", "links": "u"}\n', 'line 1: "links"'),
        (b"[" * 100_000, "line 1: not JSON"),
        (b"\n", "holds no page"),
        (b'{"url": "u", "title": "t", "text": "x"}\n' * 2, "two pages"),
        (None, "no corpus there"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_one_plain_line(tmp_path, content, complaint):
    if content is not None:
        (tmp_path / "pages.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=complaint) as caught:
        RecordedWeb.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_facts_are_never_needed(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "facts.jsonl").mkdir()  # opening it would fail
    assert len(RecordedWeb.load(tmp_path)) == len(PAGES)


def test_the_servers_speak_as_serper_and_jina_do():
    with WebServer(RecordedWeb(PAGES)) as server, httpx.Client(base_url=server.base) as client:
        answer = client.post("/search", json={"q": "capital of Norland", "num": 1}, headers={"X-API-KEY": "any"})
        assert answer.json()["organic"] == [
            {
                "title": "Norland",
                "link": NORLAND.url,
                "snippet": "The capital of Norland is Vesk.",
                "position": 1,
            }
        ]
        assert answer.json()["searchParameters"]["q"] == "capital of Norland"
        expected = f"Title: Norland\n\nURL Source: {NORLAND.url}\n\nMarkdown Content:\n{NORLAND.text}\n"
        for path in (f"/r/{NORLAND.url}", f"/{NORLAND.url}"):
            page = client.get(path)
            assert page.text == expected
            assert page.headers["content-type"].startswith("text/plain")
        assert "2,381,741" in client.get(f"/r/{PAGES[3].url}").text
        missing = client.get("/r/https://pedia.example/Nowhere")
        assert "Warning: Target URL returned error 404: Not Found" in missing.text


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"q": " "}', b'{"q": "a", "num": 0}', b'{"q": 3}'])
def test_a_search_body_that_cannot_be_used_is_a_400(body):
    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=memory_transport(RecordedWeb(PAGES)), base_url=MEMORY_BASE) as client:
            return await client.post("/search", content=body)

    answer = asyncio.run(post())
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_a_server_stops_and_its_port_is_free_again():
    with WebServer(RecordedWeb(PAGES)) as server, httpx.Client() as client:
        base = server.base
        client.get(f"{base}/r/{NORLAND.url}")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base}/r/{NORLAND.url}")
