"""Reports: a plain data structure (`eval.sections`), written as one HTML page and as Markdown.

* `write_report` writes `report.html` and `report.md` with the same content. The page is self-contained: no network, no
  script; charts are inline SVG; it reads in light and dark.
* Everything in a report may come from untrusted pages: all text is escaped, control characters (those that reorder
  text among them) are removed, and the page's content security policy allows its own style sheet and nothing else.
* The same report always gives the same bytes.
"""

import base64
import hashlib
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from configs.errors import StorageError
from eval.charts import bar_chart, funnel_chart, line_chart
from eval.markdown import markdown
from eval.sections import Lines, Report
from eval.wording import cell, numeric, visible

HTML = "report.html"
MARKDOWN = "report.md"
_TEMPLATES = Path(__file__).parent / "templates"


def write_report(report: Report, out: Path) -> Path:
    """Write both forms into `out`; returns the page's path. Raises StorageError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in ((MARKDOWN, markdown(report)), (HTML, html(report))):
            part = out / f".{name}.tmp"
            part.write_text(text, encoding="utf-8", errors="replace")
            part.replace(out / name)
    except OSError as error:
        raise StorageError(f"{out}: cannot write the report: {error.strerror or error}") from error
    return out / HTML


def html(report: Report) -> str:
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {
        "cell": cell,
        "numeric": numeric,
        "lines": line_chart,
        "bars": bar_chart,
        "funnel": funnel_chart,
    }
    style = Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8").strip())
    return environment.get_template("report.html.jinja").render(
        report=report,
        sections=list(zip(_kinds(report), report.sections, strict=True)),
        style=style,
        policy=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    )


def _kinds(report: Report) -> list[str]:
    """The kind of each section; the last of an odd run of line charts, which stand in pairs, is `Lines alone`."""
    kinds: list[str] = []
    for section, after in pairwise([*report.sections, None]):
        paired = bool(kinds) and kinds[-1] == "Lines half"
        kind = type(section).__name__
        if isinstance(section, Lines):
            kind = "Lines pair" if paired else "Lines half" if isinstance(after, Lines) else "Lines alone"
        kinds.append(kind)
    return kinds
