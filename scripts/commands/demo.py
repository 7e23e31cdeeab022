"""`proofhound demo --out DIR [--quick] [--seed N] [key=value ...]`: the whole pipeline, and its report.

    proofhound demo                          half an hour on two cores; runs/demo/report.html
    proofhound demo --quick --out runs/q     minutes
    proofhound demo grpo.updates=40          settings over those of configs/demo/full.yaml

* Each step is a folder under DIR (scripts/stages.py draws how they hang together). The same command again goes on where
  it stopped, and does nothing but say the result when all is done.
* Settings may change between calls as long as no step that has begun depends on them; else its folder is named and
  nothing is touched. To redo a step with other settings, delete its folder and those of the steps after it.
* DIR also gets config.yaml (all settings) and about.json (command, versions, time and memory of the run as a whole).
"""

import argparse
import json
import platform
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from configs import __version__
from configs.errors import InputError, StorageError, boundary
from configs.loader import content_hash, load, resolve, save_resolved
from eval.report import HTML, MARKDOWN
from scripts.pipeline import closure
from scripts.stages import demo
from scripts.stages_config import DemoConfig
from scripts.steps.folder import Done, read_done, write_json
from scripts.steps.report import ABOUT
from scripts.workers import Usage, run_pipeline

CONFIG = "config.yaml"
_SECONDS, _PEAK = "wall-clock seconds", "peak memory, all processes, MiB"
_LIBRARIES = ("torch", "transformers", "trl")


def run(args: argparse.Namespace) -> int:
    layers = [resolve("demo", "full"), *([resolve("demo", "quick")] if args.quick else [])]
    config = load(DemoConfig, [*layers, *args.config], args.overrides)
    report = demo(config, args.seed)
    out: Path = args.out
    about = About(out, config, args.seed)
    run_pipeline(out, "demo", closure([report]), config.workers, about.update)
    publish(out / report.name, out, (HTML, MARKDOWN))
    done = read_done(out / report.name, report.key)
    assert done is not None
    for line in accuracies(done):
        print(line)
    print(out / HTML)
    return 0


class About:
    """Keeps config.yaml and about.json of a pipeline's folder; time and memory add up over interruptions."""

    def __init__(self, out: Path, config: DemoConfig, seed: int) -> None:
        self._out = out
        self._config = config
        self._seed = seed
        self._before: dict[str, float] | None = None

    def update(self, usage: Usage) -> None:
        path = self._out / ABOUT
        if self._before is None:
            self._before = _read_about(path)
            save_resolved(self._config, self._out / CONFIG)
        seconds = self._before.get(_SECONDS, 0.0) + usage.seconds
        peak = max(self._before.get(_PEAK, 0.0), usage.peak_mib)
        write_json(
            path,
            {
                "command": shlex.join(["proofhound", *sys.argv[1:]]),
                "seed": str(self._seed),
                "config": content_hash(self._config),
                "versions": ", ".join(_versions()),
                **_commit(),
                "finished": datetime.now(UTC).isoformat(timespec="minutes"),
                "machine": f"{platform.system()} {platform.machine()}, {self._config.workers} steps at a time",
                _SECONDS: round(seconds, 1),
                _PEAK: round(peak, 1),
            },
        )


def _read_about(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    with boundary(InputError, f"{path}: unreadable; delete it to start its counts anew"):
        about = json.loads(path.read_text(encoding="utf-8"))
        return {key: float(about[key]) for key in (_SECONDS, _PEAK) if key in about}


def accuracies(done: Done) -> list[str]:
    """One line an arm."""
    width = max(map(len, done.results))
    return [f"{name:{width}}  {100 * value:5.1f}%" for name, value in done.results.items()]


def publish(step: Path, out: Path, names: tuple[str, ...]) -> None:
    """Copies of a step's files in the pipeline's folder."""
    for name in names:
        with boundary(StorageError, f"{out / name}: cannot write"):
            part = out / f".{name}.tmp"
            shutil.copyfile(step / name, part)
            part.replace(out / name)


def _commit() -> dict[str, str]:
    """The commit of the source, where it is a git checkout."""
    source = Path(__file__).resolve().parents[2]
    if not (source / ".git").exists() or shutil.which("git") is None:
        return {}
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    return {"commit": found.stdout.strip()} if found.returncode == 0 else {}


def _versions() -> list[str]:
    found = [f"proofhound {__version__}", f"python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found
