"""Reports: every section in both forms, hostile text harmless, nothing loaded from anywhere."""

import base64
import hashlib
import math
import re
from html.parser import HTMLParser

import pytest

from eval.charts import line_chart
from eval.report import html, write_report
from eval.sections import (
    Bar,
    Bars,
    EvidenceView,
    Funnel,
    Lines,
    Report,
    Series,
    StepView,
    Table,
    Text,
    TrajectoryView,
)
from eval.views import trajectory_view
from eval.wording import number
from inference.types import (
    Answer,
    Episode,
    EpisodeKey,
    Evidence,
    Node,
    Question,
    Role,
    Step,
    StopReason,
    ToolCall,
    Trajectory,
)
from rollout_env.outcome import Outcome
from rollout_env.problem import Gold, Problem

EVIL = (
    '<script>x</script><img src=//e.example/a.png onerror="x">"\'</svg></style>'
    " ![i](//e.example) | `` \u202egpj\x1b[2J\x00"
)


def report(text=EVIL):
    points = tuple((float(i), math.sin(i) if i else math.nan) for i in range(500))
    return Report(
        text,
        (
            Text(text, (text,)),
            Table(text, (text, "n"), ((text, 1234), (text, None)), text),
            Funnel(text, ((text, 10), (text, 4)), ((text, 6),), text),
            Lines(text, (Series(text, points), Series(text, ((0, 1), (1, 2)))), text, text, text),
            Lines(text, (Series(text, ()),)),
            Bars(text, ((text, (Bar(text, 0.5, 0.4, 0.6, text),)), (text, (Bar(text, math.nan),))), note=text),
            TrajectoryView(
                text,
                text,
                (StepView(text, (text,), (text,), True),),
                text,
                text,
                "incorrect",
                (EvidenceView(text, text, text, True), EvidenceView(text, text, text, False)),
                text,
            ),
        ),
        text,
        ((text, text),),
    )


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_hostile_text_stays_text_in_the_page():
    text = html(report())
    page = Page(text)
    assert not page.open
    assert not page.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "style")]
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    assert "&lt;script&gt;" in text
    assert not re.search("[\u202e\x00\x1b]", text)


def test_the_policy_allows_the_pages_own_style_and_nothing_else():
    text = html(report("plain"))
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style


def test_hostile_text_stays_text_in_markdown(tmp_path):
    write_report(report(), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    outside_fences = re.sub(r"^(`{3,})\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)<|(?<!\\)!\[|(?<!\\)\[i|[\u202e\x00\x1b]", outside_fences)
    table = [line for line in outside_fences.splitlines() if line.startswith("|") and "1,234" in line]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in table] == [3]


def test_the_same_report_gives_the_same_bytes(tmp_path):
    write_report(report(), tmp_path / "a")
    write_report(report(), tmp_path / "b")
    for name in ("report.html", "report.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert len(list((tmp_path / "a").iterdir())) == 2


def test_a_long_series_is_thinned_and_smoothed():
    svg = line_chart(Lines("", (Series("loss", tuple((i, 1 + i % 2) for i in range(5000))),)))
    faint, strong = re.findall(r'<path class="line c0(?: faint)?" d="M([^"]*)"', svg)
    assert len(strong.split("L")) == 300
    heights = [float(point.split()[1]) for point in strong.split("L")]
    assert max(heights) - min(heights) < 5
    assert len(svg) < 20_000
    assert faint != strong


@pytest.mark.parametrize("points", [((0, 0),), ((3, 5), (4, 5)), ((0, -2e-9), (1, 1e-9)), ((0, 1e12), (1, -1e12))])
def test_axes_enclose_their_points(points):
    svg = line_chart(Lines("", (Series("s", points),)))
    circles = re.findall(r'cx="([\d.-]+)" cy="([\d.-]+)"', svg)
    assert len(circles) == len(points)
    assert all(0 <= float(x) <= 480 and 0 <= float(y) <= 250 for x, y in circles)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.1234, "0.123"),
        (1.5, "1.50"),
        (23.46, "23.5"),
        (1234.5, "1,234"),
        (2e-5, "2.0e-05"),
        (math.nan, "–"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_evidence_is_marked_by_what_was_observed():
    call = ToolCall("c", "scrape_and_extract_info", {"url": "https://a.example/x"})
    turn = '<think>\nI read.\n</think>\n<tool_call>\n{"name": "..."}\n</tool_call>'
    nodes = (
        Node(Role.ASSISTANT, turn, (call,)),
        Node(Role.TOOL, "Algiers is the capital of Algeria.", call_id="c"),
        Node(Role.ASSISTANT, '- Algiers | "Algiers is the capital" | https://a.example/x\n\\boxed{Algiers}'),
    )
    links = (
        Evidence("Algiers is the capital", "Algiers is the capital", "https://a.example/x"),
        Evidence("Algiers is the capital", "Algiers is the capital", "https://b.example/x"),
    )
    answer = Answer("Algiers", links)
    attempt = Trajectory(nodes, (Step((), 0, (1,)), Step((), 2)), StopReason.ANSWERED, answer)
    episode = Episode(EpisodeKey("q"), (attempt,), StopReason.ANSWERED, answer)
    view = trajectory_view("t", Problem(Question("q", "?"), Gold(("Algiers",))), episode, Outcome.CORRECT)
    assert [link.holds for link in view.evidence] == [True, False]
    assert view.steps[0].thought == "I read."
    assert view.steps[0].calls == ("scrape_and_extract_info(url='https://a.example/x')",)
    assert view.steps[1].thought == "\\boxed{Algiers}"
