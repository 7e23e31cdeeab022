"""Charts as inline SVG: numbers in, escaped markup out. Colours and fonts are classes of `templates/report.css`.

* Text is escaped and freed of control characters here; a chart depends on its section alone.
* Points that are not finite are not drawn. Long series are thinned by averaging neighbours; a noisy one is drawn faint,
  with its moving average over it.
* Every mark tells its value on hovering (`<title>`), and no value is told by colour alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from eval.sections import Bar, Bars, Funnel, Lines, Series
from eval.wording import interval, number, percent, visible

COLOURS = 8
"""Classes `c0` ... `c7`; later series begin again."""
_WIDTH = 900
_ROW = 26
_LABEL = 200
"""Width of the column of labels, in user units as everything here."""
_VALUE = 130
_MOST_POINTS = 300
_NOISY = 40
"""Points from which a moving average is drawn."""


def bar_chart(section: Bars) -> Markup:
    """Horizontal bars with their 95% intervals, in groups."""
    labels = list(dict.fromkeys(bar.label for _, bars in section.groups for bar in bars))
    plain = len(section.groups) == 1
    top = 1.0 if section.percent else _top(bar for _, bars in section.groups for bar in bars)
    frame = _Rows(top, "percent" if section.percent else "number")
    for heading, bars in section.groups:
        if heading:
            frame.heading(heading)
        for bar in bars:
            frame.bar(bar, 0 if plain else labels.index(bar.label))
    return frame.svg(section.title)


def funnel_chart(section: Funnel) -> Markup:
    """Bars of what was left after each stage, then of what was rejected, by reason."""
    rows = [*section.kept, *section.rejected]
    frame = _Rows(max([1.0, *(float(count) for _, count in rows)]), "count")
    first = section.kept[0][1] if section.kept else 0
    for name, count in section.kept:
        share = f"{percent(count / first)} of the first stage" if first else ""
        frame.bar(Bar(name, count, detail=share), 0)
    if section.rejected:
        frame.heading("rejected")
        for name, count in sorted(section.rejected, key=lambda row: -row[1]):
            frame.bar(Bar(name, count), 1)
    return frame.svg(section.title)


def line_chart(section: Lines) -> Markup:
    """Series over one pair of axes."""
    drawn = [(i, s, [p for p in s.points if all(map(math.isfinite, p))]) for i, s in enumerate(section.series)]
    drawn = [(i, series, points) for i, series, points in drawn if points]
    if not drawn:
        return Markup('<p class="empty">No points.</p>')
    plot = _Plot.over([point for _, _, points in drawn for point in points])
    parts = [plot.axes(section.x_label, section.y_label)]
    parts += [plot.series(series, points, i % COLOURS) for i, series, points in drawn]
    svg = _svg(section.title, plot.width, plot.height, parts)
    return svg if len(drawn) == 1 else svg + _legend([(series.name, i % COLOURS) for i, series, _ in drawn])


def sparkline(points: Sequence[tuple[float, float]], width: int = 24) -> str:
    """A series as a line of block characters."""
    values = [y for _, y in _thinned([p for p in points if math.isfinite(p[1])], width)]
    if not values:
        return ""
    low, span = min(values), max(values) - min(values)
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (value - low) / span) if span else 3] for value in values)


class _Rows:
    """Horizontal bars, one under the other."""

    def __init__(self, top: float, unit: str) -> None:
        self.top = top
        self.unit = unit
        self.y = 4.0
        self.parts: list[Markup] = []
        self.plot = _WIDTH - _LABEL - _VALUE

    def heading(self, text: str) -> None:
        self.y += 8 if self.parts else 0
        self.parts.append(_text(0, self.y + 16, text, "heading"))
        self.y += _ROW

    def bar(self, bar: Bar, colour: int) -> None:
        y, middle = self.y, self.y + _ROW / 2
        value = bar.value if math.isfinite(bar.value) else 0.0
        shown = self._shown(bar)
        title = Markup("<title>{}</title>").format(
            _clean(f"{bar.label}: {shown}" + (f", {bar.detail}" if bar.detail else ""))
        )
        mark = Markup('<rect class="c{}" x="{}" y="{}" width="{}" height="{}" rx="2"/>').format(
            colour % COLOURS, _LABEL, _f(y + 5), _f(max(self._x(value) - _LABEL, 1)), _ROW - 10
        )
        label = _text(_LABEL - 10, middle + 4.5, _shorten(bar.label, 30), "label end")
        text = _text(_WIDTH - _VALUE + 12, middle + 4.5, shown, "value")
        whisker = self._whisker(bar, middle)
        self.parts.append(Markup("<g>{}{}{}{}{}</g>").format(title, label, mark, whisker, text))
        self.y += _ROW

    def svg(self, title: str) -> Markup:
        bottom = self.y + 2
        grid, ticks = [], []
        for share in (0, 0.25, 0.5, 0.75, 1):
            x = _LABEL + self.plot * share
            line = Markup('<line class="{}" x1="{x}" x2="{x}" y1="0" y2="{}"/>')
            grid.append(line.format("grid" if share else "axis", _f(bottom), x=_f(x)))
            if self.unit == "percent":
                ticks.append(_text(x, bottom + 15, f"{100 * share:.0f}%", "tick middle"))
        return _svg(title, _WIDTH, bottom + (22 if ticks else 4), [*grid, *self.parts, *ticks])

    def _x(self, value: float) -> float:
        return _LABEL + self.plot * min(max(value / self.top, 0.0), 1.0)

    def _shown(self, bar: Bar) -> str:
        if self.unit == "count":
            return f"{bar.value:,.0f}"
        text = percent(bar.value) if self.unit == "percent" else number(bar.value)
        if bar.low is None or bar.high is None or not math.isfinite(bar.low):
            return text
        low_high = interval(bar.low, bar.high) if self.unit == "percent" else f"{number(bar.low)}–{number(bar.high)}"
        return f"{text}  [{low_high.rstrip('%')}]"

    def _whisker(self, bar: Bar, y: float) -> Markup:
        if bar.low is None or bar.high is None or not math.isfinite(bar.low + bar.high):
            return Markup("")
        low, high = _f(self._x(bar.low)), _f(self._x(bar.high))
        path = f"M{low} {_f(y)}H{high}M{low} {_f(y - 4)}V{_f(y + 4)}M{high} {_f(y - 4)}V{_f(y + 4)}"
        return Markup('<path class="halo" d="{0}"/><path class="whisker" d="{0}"/>').format(path)


@dataclass(frozen=True, slots=True)
class _Plot:
    """Two axes over the points' range."""

    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]
    x_low: float
    x_high: float
    width: int = 480
    height: int = 250
    left: int = 48
    right: int = 14
    top: int = 22
    bottom: int = 40

    @staticmethod
    def over(points: Sequence[tuple[float, float]]) -> "_Plot":
        xs, ys = [x for x, _ in points], [y for _, y in points]
        low = 0.0 if 0 <= min(ys) <= 0.5 * max(ys) else min(ys)
        y_ticks = _ticks(low, max(ys), 5)
        x_ticks = tuple(tick for tick in _ticks(min(xs), max(xs), 6) if min(xs) <= tick <= max(xs))
        return _Plot(x_ticks, y_ticks, min(xs), max(xs))

    def x(self, value: float) -> float:
        span = self.x_high - self.x_low or 1.0
        return self.left + (self.width - self.left - self.right) * (value - self.x_low) / span

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return self.height - self.bottom - (self.height - self.bottom - self.top) * (value - low) / (high - low)

    def axes(self, x_label: str, y_label: str) -> Markup:
        parts = []
        for i, tick in enumerate(self.y_ticks):
            kind = "axis" if i == 0 else "grid"
            parts.append(
                Markup('<line class="{}" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                    kind, self.left, self.width - self.right, y=_f(self.y(tick))
                )
            )
            parts.append(_text(self.left - 8, self.y(tick) + 4, _tick(tick), "tick end"))
        floor = self.height - self.bottom
        parts += [_text(self.x(tick), floor + 16, _tick(tick), "tick middle") for tick in self.x_ticks]
        parts.append(_text((self.left + self.width - self.right) / 2, self.height - 6, x_label, "tick middle"))
        parts.append(_text(4, 12, y_label, "tick"))
        return Markup("").join(parts)

    def series(self, series: Series, points: Sequence[tuple[float, float]], colour: int) -> Markup:
        noisy = len(points) >= _NOISY
        parts = [self._path(points, f"line c{colour} faint")] if noisy else []
        strong = _smoothed(points) if noisy else points
        parts.append(self._path(strong, f"line c{colour}"))
        for x, y in strong[-1:] if noisy else strong:
            parts.append(
                Markup('<circle class="c{}" cx="{}" cy="{}" r="3"><title>{}</title></circle>').format(
                    colour, _f(self.x(x)), _f(self.y(y)), _clean(f"{series.name}: {number(y)} at {_tick(x)}")
                )
            )
        return Markup("").join(parts)

    def _path(self, points: Sequence[tuple[float, float]], kind: str) -> Markup:
        places = "L".join(f"{_f(self.x(x))} {_f(self.y(y))}" for x, y in _thinned(points, _MOST_POINTS))
        return Markup('<path class="{}" d="M{}"/>').format(kind, places)


def _svg(title: str, width: float, height: float, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _f(width), _f(height), _clean(title), Markup("").join(parts)
    )


def _legend(names: Sequence[tuple[str, int]]) -> Markup:
    key = Markup(
        '<svg viewBox="0 0 14 14" aria-hidden="true"><rect class="c{}" y="3" width="14" height="8" rx="2"/></svg>'
    )
    items = [Markup("<li>{}{}</li>").format(key.format(colour), _clean(name)) for name, colour in names]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, _f(x), _f(y), _clean(text))


def _clean(text: str) -> Markup:
    return escape(visible(text))


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _f(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _top(bars: Iterable[Bar]) -> float:
    ends = [end for bar in bars for end in (bar.value, bar.high) if end is not None and math.isfinite(end)]
    return max([*ends, 0.0]) or 1.0


def _ticks(low: float, high: float, about: int) -> tuple[float, ...]:
    """Round numbers that enclose [low, high], about so many."""
    span = high - low or abs(high) or 1.0
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(i * step for i in range(first, max(last, first + 1) + 1))


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def _thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    if len(points) <= most:
        return list(points)
    cuts = [round(i * len(points) / most) for i in range(most + 1)]
    return [_centre(points[a:b]) for a, b in pairwise(cuts)]


def _smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The centred moving average over about a fifteenth of the series, narrower at its ends."""
    half = max(1, len(points) // 30)
    sums = [0.0]
    for _, y in points:
        sums.append(sums[-1] + y)
    smooth = []
    for i, (x, _) in enumerate(points):
        a, b = max(0, i - half), min(len(points), i + half + 1)
        smooth.append((x, (sums[b] - sums[a]) / (b - a)))
    return smooth


def _centre(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
