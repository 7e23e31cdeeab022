"""A report as Markdown: the same content as the page, charts as tables with characters for bars and curves.

Text is escaped: what stands in a page a model has read cannot become a link, an image, markup or a table row here.
"""

import math
import re

from eval.charts import sparkline
from eval.sections import Bars, Funnel, Lines, Report, Section, Table, Text, TrajectoryView
from eval.wording import cell, interval, number, percent, visible

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")
_MARKS = {True: "✓", False: "✗", None: "?"}
_BAR = 20
"""Characters of a full bar."""


def markdown(report: Report) -> str:
    """The whole report, ending in one newline."""
    parts = [f"# {_inline(report.title)}"]
    if report.subtitle:
        parts.append(_inline(report.subtitle))
    if report.figures:
        parts.append("\n".join(f"- {_inline(name)}: **{_inline(value)}**" for name, value in report.figures))
    parts += [_section(section) for section in report.sections]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> str:
    match section:
        case Text():
            body = "\n\n".join(_inline(paragraph) for paragraph in section.paragraphs)
        case Table():
            body = _table(section.columns, [[_inline(cell(value)) for value in row] for row in section.rows])
        case Funnel():
            body = _funnel(section)
        case Lines():
            body = _lines(section)
        case Bars():
            body = _bars(section)
        case TrajectoryView():
            body = _trajectory(section)
    note = "" if isinstance(section, Text) or not section.note else f"\n\n{_inline(section.note)}"
    return f"## {_inline(section.title)}\n\n{body}{note}"


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [[_inline(column) for column in columns], ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _funnel(section: Funnel) -> str:
    most = max([1, *(count for _, count in section.kept)])
    rows = [[_inline(name), f"{count:,}", _blocks(count / most)] for name, count in section.kept]
    body = _table(("kept after", "number", ""), rows)
    if not section.rejected:
        return body
    reasons = sorted(section.rejected, key=lambda row: -row[1])
    return f"{body}\n\n" + _table(("rejected because", "number"), [[_inline(r), f"{n:,}"] for r, n in reasons])


def _lines(section: Lines) -> str:
    rows = []
    for series in section.series:
        ys = [y for _, y in series.points if math.isfinite(y)]
        if ys:
            ends = [number(ys[0]), number(ys[-1]), number(min(ys)), number(max(ys))]
            rows.append([_inline(series.name), *ends, sparkline(series.points)])
    if not rows:
        return "No points."
    return _table((section.y_label or "series", "first", "last", "least", "most", f"over {section.x_label}"), rows)


def _bars(section: Bars) -> str:
    top = 1.0 if section.percent else max([b.value for _, bars in section.groups for b in bars], default=1.0) or 1.0
    rows = []
    for heading, bars in section.groups:
        for bar in bars:
            value = percent(bar.value) if section.percent else number(bar.value)
            rows.append([_inline(heading), _inline(bar.label), value, _ends(bar.low, bar.high, section.percent)])
            rows[-1].append(_blocks(bar.value / top))
    columns: tuple[str, ...] = ("", "", "value", "95% interval", "")
    if not any(heading for heading, _ in section.groups):
        columns, rows = columns[1:], [row[1:] for row in rows]
    return _table(columns, rows)


def _ends(low: float | None, high: float | None, share: bool) -> str:
    if low is None or high is None or not math.isfinite(low):
        return "–"
    return interval(low, high) if share else f"{number(low)}–{number(high)}"


def _trajectory(section: TrajectoryView) -> str:
    parts = [f"> {_inline(section.question)}"]
    for i, step in enumerate(section.steps, 1):
        marks = " (malformed turn)" if step.malformed else ""
        body = "\n".join([step.thought, *(f"→ {call}" for call in step.calls), *(f"← {o}" for o in step.observations)])
        parts.append(f"{i}.{marks}\n\n{_fenced(body)}")
    links = [
        f"- {_MARKS[link.holds]} {_inline(link.claim)} — “{_inline(link.quote)}” — {_inline(link.source)}"
        for link in section.evidence
    ]
    parts += ["\n".join(links)] if links else []
    answer = "no answer" if section.answer is None else f"**{_inline(section.answer)}**"
    parts.append(f"Answer: {answer} ({section.outcome.replace('_', ' ')}; gold: {_inline(section.gold)})")
    return "\n\n".join(parts)


def _blocks(share: float) -> str:
    return "█" * round(_BAR * min(max(share, 0.0), 1.0)) if math.isfinite(share) else ""


def _inline(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split())).replace("&", "&amp;")


def _fenced(text: str) -> str:
    text = visible(text)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}\n{text}\n{fence}"
