"""A pipeline: named steps, each a folder, each done once and started when what it needs is done.

* A step is a pure function of its `StepSpec`: what it does, its settings, its seed, and its inputs with their keys. Its
  own key is the spec's content hash, so it changes with anything upstream and with nothing else: not with the machine,
  the folder's name or how often the run was interrupted.
* Steps refer to the steps they need, so a pipeline has no cycle; it holds everything its steps need.
* `Schedule` is a pure state machine: the step that most others wait for starts first.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import InputError
from configs.loader import content_hash
from configs.schema import Config


class Input(Config):
    path: str
    """Relative to the pipeline's folder; absolute for what lies outside."""
    key: str
    """Key of the step it is from, or the hash of what lies outside."""


class StepSpec(Config):
    """A step folder's config.yaml: all that its content follows from."""

    kind: str
    """Which function of `scripts.steps` carries it out."""
    seed: int
    inputs: dict[str, Input] = {}
    settings: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Ref:
    """Something a step can be given: a file or folder of another step, or one that lies outside (`step` None)."""

    path: str
    key: str
    step: "Step | None" = None

    def __truediv__(self, name: str) -> "Ref":
        return Ref(f"{self.path}/{name}", self.key, self.step)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    name: str
    """Its folder under the pipeline's, which may be nested."""
    spec: StepSpec
    needs: tuple["Step", ...]
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", content_hash(self.spec))

    def __truediv__(self, name: str) -> Ref:
        return self.ref / name

    @property
    def ref(self) -> Ref:
        """The whole folder."""
        return Ref(self.name, self.key, self)


def step(name: str, kind: str, settings: Config, seed: int, **inputs: "Step | Ref") -> Step:
    """A step that is given `inputs` by role."""
    refs = {role: given.ref if isinstance(given, Step) else given for role, given in inputs.items()}
    spec = StepSpec(
        kind=kind,
        seed=seed,
        inputs={role: Input(path=ref.path, key=ref.key) for role, ref in refs.items()},
        settings=settings.model_dump(mode="json"),
    )
    return Step(name, spec, tuple(dict.fromkeys(ref.step for ref in refs.values() if ref.step is not None)))


def outside(folder: Path, files: Iterable[str]) -> Ref:
    """A folder that no step makes, known by the content of `files`. Raises InputError where one is missing."""
    digest = hashlib.sha256()
    for name in files:
        try:
            with (folder / name).open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise InputError(f"{folder / name}: {error.strerror or error}") from error
    return Ref(str(folder.resolve()), digest.hexdigest()[:16])


def closure(ends: Iterable[Step]) -> list[Step]:
    """The steps that `ends` need, and these, each after what it needs. Two steps of one name are a ValueError."""
    found: dict[str, Step] = {}

    def visit(one: Step) -> None:
        if found.get(one.name) is one:
            return
        for needed in one.needs:
            visit(needed)
        if found.setdefault(one.name, one) is not one:
            raise ValueError(f"two steps are called {one.name}")

    for end in ends:
        visit(end)
    return list(found.values())


class Schedule:
    """Which steps run when; the caller runs them. `steps` stand after what they need, as `closure` gives them."""

    def __init__(self, steps: Sequence[Step], workers: int, done: Collection[str] = ()) -> None:
        self._steps = list(steps)
        self._workers = workers
        self._done = set(done)
        self._running: set[str] = set()
        self._waiting = _waiting(self._steps)

    def start(self) -> list[Step]:
        """The steps to start now; they count as running from here on."""
        ready = [s for s in self._steps if s.name not in self._done | self._running and self._is_ready(s)]
        ready.sort(key=lambda s: -self._waiting[s.name])
        started = ready[: max(0, self._workers - len(self._running))]
        self._running |= {s.name for s in started}
        return started

    def finish(self, name: str) -> None:
        self._running.remove(name)
        self._done.add(name)

    @property
    def over(self) -> bool:
        return all(s.name in self._done for s in self._steps)

    def _is_ready(self, one: Step) -> bool:
        return all(needed.name in self._done for needed in one.needs)


def _waiting(steps: Sequence[Step]) -> dict[str, int]:
    """How many steps wait for each, directly or not."""
    above: dict[str, set[str]] = {s.name: set() for s in steps}
    for one in reversed(steps):
        for needed in one.needs:
            above[needed.name] |= above[one.name] | {one.name}
    return {name: len(others) for name, others in above.items()}
