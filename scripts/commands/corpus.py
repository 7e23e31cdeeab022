"""`proofhound corpus build SOURCE --out DIR`: a folder of pages, their links and the facts behind them.

    proofhound corpus build factbook --out runs/factbook              the embedded real facts
    proofhound corpus build world --seed 7 --out runs/w7              a generated world (also: world:7)
    proofhound corpus build my/pages.jsonl --out runs/mine            your own pages; facts are what they state

* Pages of your own are checked line by line; a bad one is named and nothing is written.
* A folder that is complete is left as it is.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from configs.errors import InputError
from configs.loader import load
from configs.run_folder import open_run
from configs.schema import Config
from data_synthesis import factbook
from data_synthesis.corpus import AnyPage, read_manifest, write_corpus
from data_synthesis.facts import Fact, FactTable
from data_synthesis.holdout import is_held_out
from data_synthesis.names import pools_of
from data_synthesis.pages import render_pages
from data_synthesis.reader import read_text
from data_synthesis.world import generate_world
from inference.web.recorded_web import PAGES_FILE, read_pages
from scripts.progress import progress

_RENDERED = ("factbook", "world")


class CorpusBuildConfig(Config):
    source: str
    """factbook, world, or a pages.jsonl or the folder it is in."""
    seed: int = 0
    """Names and facts of a generated world; hosts, titles and wording of rendered pages."""
    countries: int = Field(default=40, ge=4)
    """Size of a generated world."""
    real_names: bool = True
    """A generated world borrows names of real countries that are not kept for evaluation; none of their facts."""


def run(args: argparse.Namespace) -> int:
    source, seed = _source_and_seed(args.source, args.seed)
    own = [f"source={json.dumps(source)}", f"seed={seed}"]
    config = load(CorpusBuildConfig, args.config, [*own, *args.overrides])
    name, pages, facts = _rendered(config) if config.source in _RENDERED else _given(Path(config.source))
    folder = open_run(args.out, "corpus", config)
    manifest = read_manifest(folder.path)
    if manifest is None:
        with progress("pages") as bar:
            manifest = write_corpus(folder.path, name, config.seed, pages, facts, bar.advance)
    print(f"{folder.path}: {manifest.pages} pages, {manifest.facts} facts, name {manifest.name}")
    return 0


def _source_and_seed(word: str, seed: int) -> tuple[str, int]:
    """`world:7` is the world of seed 7; any other source is taken as it is."""
    source, colon, number = word.partition(":")
    if source != "world" or not colon:
        return word, seed
    if not (number.isascii() and number.isdecimal()):
        raise InputError(f"{word}: expected world or world:SEED with a whole number")
    return source, int(number)


def _rendered(config: CorpusBuildConfig) -> tuple[str, Iterable[AnyPage], Iterable[Fact]]:
    facts = factbook.load() if config.source == "factbook" else _world(config)
    name = "factbook" if config.source == "factbook" else f"world-{config.seed}"
    return name, render_pages(facts, config.seed), facts


def _world(config: CorpusBuildConfig) -> FactTable:
    real = factbook.load()
    pools = pools_of(real, {c for c in real.subjects if not is_held_out(c)}) if config.real_names else None
    return generate_world(config.seed, config.countries, pools)


def _given(source: Path) -> tuple[str, Iterable[AnyPage], Iterable[Fact]]:
    """Somebody's own pages, all of them read and checked."""
    folder = source.parent if source.name == PAGES_FILE else source
    if not (folder / PAGES_FILE).is_file():
        what = f"a file of pages has to be called {PAGES_FILE}" if source.is_file() else "no such corpus"
        raise InputError(f"{source}: {what}: give factbook, world, or a {PAGES_FILE} or the folder it is in")
    pages = list(read_pages(folder))
    facts: dict[tuple[str, str, str], Fact] = {}
    for fact in (fact for page in pages for fact in read_text(page.text)):
        facts.setdefault((fact.subject, fact.relation, fact.object), fact)
    return folder.resolve().name, pages, facts.values()
