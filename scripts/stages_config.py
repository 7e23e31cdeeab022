"""Configs of the demo (`configs/demo`) and of the study of its stages (`configs/study`): every number of the pipeline.

What one step hands to the next (paths, agent, seeds) is not among them: the pipeline sets it, and says so when a file
tries to.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from configs.schema import Config
from inference.tools.config import WebLimits
from inference.web.config import EmbeddedWebConfig
from scripts.steps.questions import Source
from training.train_config import DpoConfig, GrpoConfig, LmConfig, StageConfig

_UNSET = Path()
_OURS = ("model", "data", "seed", "stage", "agent", "web", "problems")
"""Fields of the stages that the pipeline sets."""


def _ours_unset(stage: StageConfig) -> None:
    set_by_user = [name for name in _OURS if name in stage.model_fields_set]
    if set_by_user:
        raise ValueError(f"{set_by_user[0]} is set by the pipeline")


class LmSettings(LmConfig):
    stage: str = "sft"  # type: ignore[assignment]
    model: Path = _UNSET
    data: tuple[Path, ...] = (_UNSET,)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ours_unset(self)
        return self


class DpoSettings(DpoConfig):
    model: Path = _UNSET
    data: tuple[Path, ...] = (_UNSET,)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ours_unset(self)
        return self


class GrpoSettings(GrpoConfig):
    model: Path = _UNSET
    agent: str = ""
    web: EmbeddedWebConfig = EmbeddedWebConfig()
    problems: Path = _UNSET

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ours_unset(self)
        return self


class HeldOutConfig(Config):
    sources: tuple[Source, ...] = Field(min_length=1)
    keep: int = Field(ge=1)
    """Most questions kept of those the teacher solves."""


class TrainSetConfig(Config):
    sources: tuple[Source, ...] = Field(min_length=1)
    keep: int | None = Field(default=None, ge=1)
    """Most questions kept of those the teacher solves. None: all."""


class TrainSets(Config):
    sft: TrainSetConfig
    """Imitated by mid and sft."""
    pairs: TrainSetConfig
    """Answered by the sft model for preferences."""
    rl: TrainSetConfig
    """Rolled out by grpo. Over the generated world alone: its tools search one corpus."""

    @model_validator(mode="after")
    def _one_world(self) -> Self:
        if any(source.corpus != "world" for source in self.rl.sources):
            raise ValueError("rl: questions of the generated world only")
        return self


class TeacherConfig(Config):
    detour: float = Field(ge=0, le=1)
    """Chance of a search that goes astray first."""


class MidDataConfig(Config):
    plans: int = Field(ge=0)
    """Differently worded plans a question."""
    steps: int | None = Field(ge=0)
    """Steps rewritten of each episode. None: all."""
    questions: int | None = Field(default=None, ge=1)
    """Questions of the sft set that are used. None: all."""


class SftDataConfig(Config):
    questions: int | None = Field(default=None, ge=1)
    """Questions of the sft set that are used. None: all."""


class PairsConfig(Config):
    samples: int = Field(ge=2)
    """The sft model's rollouts of each question."""
    per_question: int = Field(ge=1)
    """Most pairs of one question."""


class SamplingConfig(Config):
    samples: int = Field(ge=1)
    """Episodes a question."""
    concurrency: int = Field(ge=1)
    """Episodes at a time."""


class VerifiedConfig(Config):
    samples: int = Field(ge=2)
    """n, candidates a question."""
    shards: int = Field(ge=1)
    """Steps that share the work; with two workers, two."""


class DemoConfig(Config):
    workers: int = Field(default=2, ge=1)
    """Steps at a time, each on one CPU thread. Changes the speed only."""
    base: Path | None = None
    """Model folder that everything starts from. None: the tiny one that comes with the project."""
    agent: str = "embedded"
    """Packaged agent or YAML file."""
    web: WebLimits = WebLimits()
    """How much of the pages the tools show."""
    countries: int = Field(ge=4)
    """Size of the generated world that training questions are about."""
    heldout: HeldOutConfig
    train: TrainSets
    teacher: TeacherConfig
    data_mid: MidDataConfig
    data_sft: SftDataConfig
    mid: LmSettings
    sft: LmSettings
    pairs: PairsConfig
    dpo: DpoSettings
    grpo: GrpoSettings
    evaluation: SamplingConfig
    verified: VerifiedConfig

    @model_validator(mode="after")
    def _first_candidates(self) -> Self:
        if self.evaluation.samples > self.verified.samples:
            raise ValueError("evaluation.samples is above verified.samples: the last model has too few candidates")
        return self


class StudyConfig(DemoConfig):
    """The demo's pipeline for several seeds, and a second one without the stage mid."""

    seeds: int = Field(default=3, ge=1)
    """Worlds, training runs and evaluations; they share the held-out questions."""
