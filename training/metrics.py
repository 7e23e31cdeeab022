"""Metrics of a training run: `metrics.jsonl`, one record an optimizer step.

* Steps are strictly rising in the file. `rewind` drops what a resumed run will do again, so a run that was interrupted
  has the same steps as one that was not.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from configs.errors import StorageError, boundary
from inference.records import append_record, encode, read_records

KIND = "metrics"

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Called after each optimizer step: steps done, steps in all, the step's metrics."""


class Metrics:
    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, step: int, values: Mapping[str, float]) -> None:
        append_record(self._path, KIND, str(step), {"step": step, **values})

    def rewind(self, step: int) -> None:
        """Keep the records up to `step`."""
        if not self._path.exists():
            return
        kept = [record for record in read_metrics(self._path) if record["step"] <= step]
        partial = self._path.with_name(f".{self._path.name}.tmp")
        with boundary(StorageError, f"{self._path}: cannot write"):
            partial.write_bytes(b"".join(encode(KIND, str(record["step"]), record) for record in kept))
            partial.replace(self._path)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every record, oldest first: `step`, `loss`, `grad_norm`, `lr`, `tokens`, `seconds` and the stage's own."""
    return list(read_records(path, dict[str, Any], KIND))
