"""What a report is made of: plain data, words and numbers, never markup. `eval.report` writes it."""

from dataclasses import dataclass

Cell = str | int | float | None
"""None and NaN are shown as a dash."""


@dataclass(frozen=True, slots=True)
class Text:
    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Funnel:
    """What was kept at each stage, and why the rest was not."""

    title: str
    kept: tuple[tuple[str, int], ...]
    """(stage, how many were left after it), in order."""
    rejected: tuple[tuple[str, int], ...] = ()
    """(reason, how many)."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    """(x, y) in order of x; points that are not finite are left out."""


@dataclass(frozen=True, slots=True)
class Lines:
    title: str
    series: tuple[Series, ...]
    x_label: str = "step"
    y_label: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    low: float | None = None
    high: float | None = None
    """Ends of the 95% interval; None where there is none."""
    detail: str = ""
    """Shown on hovering, as "93 of 150 questions"."""


@dataclass(frozen=True, slots=True)
class Bars:
    title: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]
    """(heading, bars); one group without a heading is a plain bar chart. A label has one colour in all groups."""
    percent: bool = True
    """Values are shares, drawn on an axis from 0 to 100%."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class StepView:
    thought: str
    calls: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class EvidenceView:
    claim: str
    quote: str
    source: str
    holds: bool | None
    """The quote stands in an observation of that source. None: not checked."""


@dataclass(frozen=True, slots=True)
class TrajectoryView:
    """One episode, step by step."""

    title: str
    question: str
    steps: tuple[StepView, ...]
    answer: str | None
    gold: str
    outcome: str
    """Value of a `rollout_env.outcome.Outcome`."""
    evidence: tuple[EvidenceView, ...] = ()
    note: str = ""


Section = Text | Table | Funnel | Lines | Bars | TrajectoryView


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    sections: tuple[Section, ...]
    subtitle: str = ""
    figures: tuple[tuple[str, str], ...] = ()
    """(name, value): the few numbers to see first."""
