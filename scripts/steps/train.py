"""The step `train`: one stage of training, in `run/`; the model it ends with is `model`.

* Inputs: `model` (the folder to start from); mid, sft and dpo: `data_NAME` (record files); grpo: `problems`, `corpus`.
* A dpo stage without a single pair has nothing to learn from: it passes its model on, and says so.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from configs.errors import StorageError, boundary
from configs.loader import save_resolved
from configs.schema import Config
from inference.agent import AgentConfig
from inference.tools.config import WebLimits
from scripts.steps.work import Task, parse

MODEL, RUN, AGENT = "model", "run", "agent.yaml"

C = TypeVar("C", bound=Config)


class TrainSettings(Config):
    stage: Literal["mid", "sft", "dpo", "grpo"]
    options: dict[str, Any]
    """The stage's config (training.train_config) without its paths and seed."""
    agent: AgentConfig | None = None
    """grpo: who rolls out."""
    web: WebLimits | None = None
    """grpo: how much of the corpus its tools show."""


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(TrainSettings)
    model = task.input("model")
    if settings.stage == "dpo" and not any(path.stat().st_size for path in task.inputs("data_").values()):
        _pass_on(task.folder, model)
        return {"skipped": "no pair of a right and a wrong answer to learn from"}
    trained = _grpo(task, settings, model) if settings.stage == "grpo" else _over_data(task, settings, model)
    _pass_on(task.folder, trained)
    shutil.rmtree(task.folder / RUN / "checkpoints", ignore_errors=True)  # nothing is left to resume
    return _results(task.folder / RUN)


def _over_data(task: Task, settings: TrainSettings, model: Path) -> Path:
    from training import dpo, lm
    from training.train_config import DpoConfig, LmConfig

    data = [str(path) for path in task.inputs("data_").values()]
    values = settings.options | {"model": str(model), "data": data, "seed": task.seed}
    if settings.stage == "dpo":
        return dpo.run(parse(DpoConfig, values), task.folder / RUN, _progress(task))
    return lm.run(parse(LmConfig, values | {"stage": settings.stage}), task.folder / RUN, _progress(task))


def _grpo(task: Task, settings: TrainSettings, model: Path) -> Path:
    from training import grpo
    from training.train_config import GrpoConfig

    assert settings.agent is not None
    assert settings.web is not None
    save_resolved(settings.agent, task.folder / AGENT)
    web = settings.web.model_dump(mode="json") | {"kind": "embedded", "corpus": str(task.input("corpus"))}
    paths = {"model": str(model), "problems": str(task.input("problems")), "agent": str(task.folder / AGENT)}
    config = parse(GrpoConfig, settings.options | paths | {"web": web, "seed": task.seed})
    return grpo.run(config, task.folder / RUN, _progress(task))


def _progress(task: Task) -> Any:
    def tell(step: int, steps: int, metrics: Mapping[str, float]) -> None:
        name = "reward" if "reward" in metrics else "loss"
        task.meter.update(step, steps, f"{name} {metrics[name]:.3g}")

    return tell


def _pass_on(folder: Path, model: Path) -> None:
    """A copy of `model` as the step's own, whole or not there."""
    target, part = folder / MODEL, folder / f".{MODEL}.tmp"
    with boundary(StorageError, f"{target}: cannot write"):
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(model, part)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)


def _results(run_folder: Path) -> dict[str, Any]:
    from training.metrics import read_metrics
    from training.stage import METRICS

    metrics = read_metrics(run_folder / METRICS)
    refused = run_folder / "refused.jsonl"
    return {
        "steps": len(metrics),
        "tokens": sum(row.get("tokens", 0.0) for row in metrics),
        "refused": sum(1 for _ in refused.open(encoding="utf-8")) if refused.exists() else 0,
        "last": json.loads(json.dumps(metrics[-1])) if metrics else {},
    }
