import json
import subprocess
import sys
from pathlib import Path

import pytest

TINY = [
    "countries=200",
    "heldout.keep=4",
    "train.sft.keep=24",
    "train.pairs.keep=4",
    "data_mid.questions=8",
    "pairs.samples=2",
    "grpo.updates=2",
    "grpo.questions=2",
    "grpo.samples=2",
    "verified.samples=2",
]


def run_demo(out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "scripts.cli", "demo", "--quick", "--out", str(out), *TINY]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.slow
def test_the_whole_pipeline_from_pages_to_report(tmp_path: Path):
    out = tmp_path / "demo"
    done = run_demo(out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out / "report.html")
    assert "left" in done.stderr  # progress comes with an estimate

    tables = json.loads((out / "report" / "tables.json").read_text(encoding="utf-8"))
    arms = ["base", "mid", "sft", "dpo", "grpo", "single × 2", "majority of 2", "verified of 2"]
    assert list(tables["accuracy"]) == arms
    assert {arm["questions"] for arm in tables["accuracy"].values()} == {4}
    assert len(tables["curves"]["grpo"]) == 2
    assert tables["curves"]["sft"][-1]["loss"] < tables["curves"]["sft"][0]["loss"]

    report = (out / "report.md").read_text(encoding="utf-8")
    sections = ["Held-out questions", "What each stage changed", "Training: sft", "Time, tokens and memory"]
    assert all(f"## {title}" in report for title in [*sections, "How it was made"])
    assert "gold: " in report  # an example

    before = {path: path.stat().st_mtime_ns for path in out.glob("*/**/*")}
    assert run_demo(out).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/**/*")} == before
