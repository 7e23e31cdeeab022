"""The step `corpus`: pages to search and read, and the facts behind them.

`factbook` is the embedded real facts, `world` a generated one that borrows names of real countries that are not kept
for evaluation. The step's seed draws the world's facts, and hosts and wording of the pages.
"""

from typing import Any, Literal

from pydantic import Field

from configs.schema import Config
from data_synthesis import factbook
from data_synthesis.corpus import write_corpus
from data_synthesis.facts import FactTable
from data_synthesis.holdout import is_held_out
from data_synthesis.names import pools_of
from data_synthesis.pages import render_pages
from data_synthesis.world import generate_world
from scripts.steps.work import Task


class CorpusSettings(Config):
    source: Literal["factbook", "world"]
    countries: int = Field(default=40, ge=4)
    """Size of a generated world."""


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(CorpusSettings)
    facts = factbook.load() if settings.source == "factbook" else _world(task.seed, settings.countries)
    written = 0

    def on_page() -> None:
        nonlocal written
        written += 1
        task.meter.update(written)

    name = settings.source if settings.source == "factbook" else f"world-{task.seed}"
    made = write_corpus(task.folder, name, task.seed, render_pages(facts, task.seed), facts, on_page)
    return {"name": made.name, "pages": made.pages, "facts": made.facts, "countries": len(facts.subjects)}


def _world(seed: int, countries: int) -> FactTable:
    real = factbook.load()
    return generate_world(seed, countries, pools_of(real, {c for c in real.subjects if not is_held_out(c)}))
