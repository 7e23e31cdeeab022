import ast
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


MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MOST_LINES = 60

READ_FACTS = {
    "data_synthesis/corpus.py",  # writes and reads them
    "data_synthesis/corpus_qa.py",  # a function of that name, over pages
    "scripts/commands/synth.py",
    "scripts/steps/questions.py",
}
"""Whoever makes questions. Agents, the teacher, verifiers, training sets and evaluation see pages alone."""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_opens_with_its_contract_and_no_function_is_long(path: Path):
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_facts_are_read_by_question_makers_alone():
    opens = re.compile(r"\bread_facts\b|\bFACTS_FILE\b|facts\.jsonl\"")
    found = {str(path.relative_to(ROOT)) for path in MODULES if opens.search(path.read_text("utf-8"))}
    assert found - {"scripts/kill_test.py"} == READ_FACTS  # which deletes them


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
