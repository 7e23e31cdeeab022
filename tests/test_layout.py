import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("configs", "inference", "rollout_env", "data_synthesis", "training", "eval", "scripts")

IMPORT_ALL_WITHOUT_TORCH = """
import importlib.abc, pkgutil, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "trl", "deepspeed", "accelerate", "datasets", "peft"}:
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
for package in ("configs", "inference", "rollout_env", "data_synthesis", "eval"):
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(module.__path__, package + "."):
        importlib.import_module(found.name)
import scripts.cli
"""


def test_all_but_training_imports_without_torch():
    command = [sys.executable, "-c", IMPORT_ALL_WITHOUT_TORCH]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_blind_excepts_stand_at_the_one_boundary(package: str):
    blind = re.compile(r"except\s*(:|\(?\s*(Base)?Exception\b)")
    found = {
        str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py") if blind.search(path.read_text("utf-8"))
    }
    assert found <= {"configs/errors.py"}
