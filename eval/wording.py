"""How reports word numbers and other people's text. Shared by the page, its charts and the Markdown."""

import math
import re

from eval.sections import Cell, Table

_FIGURES = re.compile(r"[\d\s.,:%+−–…×±<>=e-]*( points)?")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """The text without the characters that hide, reorder or end it."""
    return _CONTROLS.sub("", text)


def cell(value: Cell) -> str:
    """A table cell: thousands separated, three significant digits, a dash for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number(value)


def numeric(table: Table) -> list[bool]:
    """For each column, whether all its cells are figures, to be set flush right."""
    return [
        all(not isinstance(row[i], str) or _FIGURES.fullmatch(str(row[i])) for row in table.rows)
        for i in range(len(table.columns))
    ]


def number(value: float) -> str:
    """About three significant digits, without an exponent where that is readable."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else f"{'−' if value < 0 else ''}∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.001 or size >= 1e9:
        return f"{value:.1e}"
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}%"


def interval(low: float, high: float) -> str:
    """A 95% interval of a share."""
    return f"{100 * low:.0f}–{100 * high:.0f}%" if math.isfinite(low) else "–"
