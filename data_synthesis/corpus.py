"""Corpus folders: pages to search and read, and the facts behind them (docs/corpus.md).

* `write_corpus` writes pages.jsonl and facts.jsonl, each whole or not at all, and the manifest last: a folder with a
  manifest is complete. The same pages and facts give the same bytes.
* `read_facts` and `read_manifest` raise `InputError` that names the file and the line.
* Agents never read facts.jsonl; whoever makes questions does.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from configs.errors import InputError, StorageError
from data_synthesis.facts import Fact, FactTable, table
from inference.web.recorded_web import PAGES_FILE

FACTS_FILE = "facts.jsonl"
MANIFEST_FILE = "manifest.json"
SCHEMA = 1


class AnyPage(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def links(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Manifest:
    schema: int
    name: str
    seed: int
    pages: int
    facts: int
    sha256: str
    """Of pages.jsonl."""


def write_corpus(
    out: Path,
    name: str,
    seed: int,
    pages: Iterable[AnyPage],
    facts: Iterable[Fact],
    on_page: Callable[[], None] = lambda: None,
) -> Manifest:
    """Write the folder; `on_page` hears of each page. Raises StorageError."""

    def page_rows() -> Iterator[dict[str, Any]]:
        for page in pages:
            yield {"url": page.url, "title": page.title, "text": page.text, "links": list(page.links)}
            on_page()

    try:
        out.mkdir(parents=True, exist_ok=True)
        num_pages, digest = _write_lines(out / PAGES_FILE, page_rows())
        num_facts, _ = _write_lines(out / FACTS_FILE, map(asdict, facts))
        manifest = Manifest(SCHEMA, name, seed, num_pages, num_facts, digest)
        part = out / f".{MANIFEST_FILE}.part"
        part.write_text(json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(out / MANIFEST_FILE)
    except OSError as error:
        raise StorageError(f"{out}: cannot write the corpus: {error.strerror or error}") from error
    return manifest


def read_manifest(corpus: Path) -> Manifest | None:
    """None where the folder has none: it was not finished, or was put together by hand."""
    path = corpus / MANIFEST_FILE
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(**{field: row[field] for field in Manifest.__slots__})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: not the manifest of a corpus") from error


def corpus_name(corpus: Path) -> str:
    """The name questions about the corpus carry."""
    manifest = read_manifest(corpus)
    return manifest.name if manifest is not None else corpus.resolve().name


def read_facts(corpus: Path) -> FactTable:
    """The facts behind the pages. Raises InputError."""
    path = corpus / FACTS_FILE
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"{path}: no facts there ({reason})") from error
    facts = table(_fact(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip())
    if not len(facts):
        raise InputError(f"{path}: holds no fact of a known relation")
    return facts


def _fact(line: str, where: str) -> Fact:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON, so this is not a file of JSON lines") from error
    fields = ("subject", "relation", "object")
    if not isinstance(row, dict) or not all(isinstance(row.get(field), str) for field in fields):
        raise InputError(f'{where}: not a fact: expected an object with "subject", "relation" and "object"')
    return Fact(row["subject"], row["relation"], row["object"], str(row.get("value", "")))


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> tuple[int, str]:
    """(lines, sha256 of the file); the file appears when it is whole."""
    part = path.with_name(f".{path.name}.part")
    digest, count = hashlib.sha256(), 0
    with part.open("wb") as file:
        for row in rows:
            line = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "replace")
            digest.update(line)
            file.write(line)
            count += 1
    part.replace(path)
    return count, digest.hexdigest()
