"""Carries out a step: reads its spec, finds its kind, writes its done.json.

A kind is a module of this package with `run(task: Task) -> dict`, imported when it is needed: torch comes with the
kinds that train and sample. It must bear being killed anywhere and called again.
"""

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from configs.errors import ConfigError, InputError, boundary
from configs.loader import content_hash, load
from configs.schema import Config
from scripts.pipeline import StepSpec
from scripts.steps.folder import CONFIG, Meter, read_done

C = TypeVar("C", bound=Config)

KINDS = ("corpus", "questions", "teacher", "datasets", "train", "rollouts", "verified", "report", "comparison")
"""Modules of this package."""


@dataclass(frozen=True, slots=True)
class Task:
    """A step as its kind is handed it. The working directory is the pipeline's folder."""

    folder: Path
    spec: StepSpec
    meter: Meter

    @property
    def seed(self) -> int:
        return self.spec.seed

    def settings(self, schema: type[C]) -> C:
        """Raises ConfigError."""
        return parse(schema, self.spec.settings)

    def input(self, role: str) -> Path:
        return Path(self.spec.inputs[role].path)

    def inputs(self, prefix: str) -> dict[str, Path]:
        """Those whose role is `prefix` and a name: by that name, in the order given."""
        roles = (role for role in self.spec.inputs if role.startswith(prefix))
        return {role.removeprefix(prefix): self.input(role) for role in roles}


def parse(schema: type[C], values: dict[str, Any]) -> C:
    """A config from plain values, as a YAML file would give it. Raises ConfigError."""
    with boundary(ConfigError, schema.__name__):
        return schema.model_validate_json(json.dumps(values))


def carry_out(folder: Path) -> int:
    """Do the step in `folder`. Raises ProofhoundError."""
    spec = load(StepSpec, [folder / CONFIG], environ={})
    if read_done(folder, content_hash(spec)) is not None:
        return 0
    if spec.kind not in KINDS:
        raise InputError(f"{folder / CONFIG}: no kind of step is called {spec.kind!r}")
    meter = Meter(folder)
    kind = importlib.import_module(f"scripts.steps.{spec.kind}")
    results = kind.run(Task(folder, spec, meter))
    meter.close(spec, folder, results)
    return 0
