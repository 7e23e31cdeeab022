"""The ledger of what was turned down and why, and the funnel that is counted from it.

* Every candidate ends in exactly one place: kept, or one `Rejection` with the first rule it breaks. Nothing is dropped
  silently, so `candidates == kept + sum of rejections` in every `Funnel`.
* A rejection holds the candidate and the evidence against it: enough to see that the rule was right.
* `Ledger` appends to a file as rejections come; a key already on file is not written again, so a run that is repeated
  after an interruption leaves the file it would have left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.records import append_record, read_keys

REJECTION = "rejection"


@dataclass(frozen=True, slots=True)
class Rejection:
    key: str
    """Names the candidate: the same candidate of the same run has the same key."""
    reason: str
    """Code of the rule it breaks."""
    candidate: dict[str, Any] = field(default_factory=dict)
    """What was turned down, as plain JSON."""
    evidence: tuple[str, ...] = ()
    """What shows that the rule is broken, in words."""


class Ledger:
    """The rejections of one run. With a path they are on file before `reject` returns."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known = read_keys(path, REJECTION) if path is not None else set()
        self._counted: dict[str, str] = {}
        self._kept: set[str] = set()

    def keep(self, key: str) -> None:
        self._kept.add(key)

    def reject(self, rejection: Rejection) -> None:
        self._counted[rejection.key] = rejection.reason
        if self._path is not None and rejection.key not in self._known:
            append_record(self._path, REJECTION, rejection.key, rejection)
            self._known.add(rejection.key)

    def drop(self, rejection: Rejection) -> None:
        """Reject what was kept before: a later rule turned it down."""
        self._kept.discard(rejection.key)
        self.reject(rejection)

    @property
    def funnel(self) -> "Funnel":
        """Counts of this run, resumed candidates included as they are met again."""
        return Funnel(len(self._kept), dict(Counter(self._counted.values())))


@dataclass(frozen=True, slots=True)
class Funnel:
    kept: int
    rejected: dict[str, int]

    @property
    def candidates(self) -> int:
        return self.kept + sum(self.rejected.values())


def funnel_of(kept: int, rejections: Iterable[Rejection]) -> Funnel:
    return Funnel(kept, dict(Counter(r.reason for r in rejections)))


def funnel_table(funnel: Funnel, order: Iterable[str] = ()) -> str:
    """A Markdown table, one line a rule in `order` (the order they are checked in), then what remains."""
    left = funnel.candidates
    lines = ["| rule | rejected | left | share left |", "|---|---:|---:|---:|", f"| candidates | | {left} | 100.0% |"]
    for reason in dict.fromkeys([*order, *sorted(funnel.rejected)]):
        count = funnel.rejected.get(reason, 0)
        left -= count
        share = f"{left / funnel.candidates:.1%}" if funnel.candidates else "-"
        lines.append(f"| {reason} | {count} | {left} | {share} |")
    return "\n".join(lines) + "\n"


def count_table(title: str, counts: Mapping[str, int]) -> str:
    """A Markdown table of counts, in the order given."""
    lines = [f"| {title} | count |", "|---|---:|", *(f"| {name} | {count} |" for name, count in counts.items())]
    return "\n".join(lines) + "\n"
