"""`corpus`, `synth` and `data` as a user runs them: files, resumption, bad input."""

import json

import pytest

from data_synthesis.corpus import read_facts, read_manifest
from data_synthesis.ledger import Rejection
from data_synthesis.tree import Edge, Leaf, Variable, to_json
from inference.records import append_record, read_records
from inference.types import Episode
from rollout_env.problem import read_problems, write_problems
from scripts.cli import main
from tests.episodes import call_turn, episode, final_turn, problem
from training.rows import Pair, Target


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "world"
    assert main(["corpus", "build", "world:5", "--out", str(folder), "countries=16"]) == 0
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}


def test_a_world_is_built_whole_and_left_alone(world, tmp_path):
    manifest = read_manifest(world)
    assert (manifest.name, manifest.seed, manifest.facts) == ("world-5", 5, len(read_facts(world)))
    before = contents(world)
    assert main(["corpus", "build", "world:5", "--out", str(world), "countries=16"]) == 0
    assert contents(world) == before
    again = tmp_path / "again"
    assert main(["corpus", "build", "world", "--seed", "5", "--out", str(again), "countries=16"]) == 0
    assert contents(again) == before


def test_own_pages_are_taken_with_the_facts_they_state(world, tmp_path):
    assert main(["corpus", "build", str(world / "pages.jsonl"), "--out", str(tmp_path / "own")]) == 0
    assert (tmp_path / "own" / "pages.jsonl").read_bytes() == (world / "pages.jsonl").read_bytes()
    stated = {(f.subject, f.relation, f.object) for f in read_facts(tmp_path / "own")}
    assert stated == {(f.subject, f.relation, f.object) for f in read_facts(world)}


@pytest.mark.parametrize(
    ("method", "settings"), [("webhop", ["count=30", "heldout=6"]), ("corpus", ["count=12", "generator.pages=16"])]
)
def test_an_interrupted_synth_ends_as_an_uninterrupted_one(world, tmp_path, method, settings):
    command = ["synth", method, "--corpus", str(world), "--seed", "3", *settings]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*command, "--out", str(whole)]) == 0
    assert main([*command, "--out", str(broken)]) == 0
    for name in ("accepted.jsonl", "rejections.jsonl"):
        half = (broken / name).read_bytes()
        (broken / name).write_bytes(half[: len(half) // 2])
    (broken / "problems.jsonl").unlink()
    assert main([*command, "--out", str(broken)]) == 0
    assert contents(broken) == contents(whole)
    problems = read_problems(whole / "problems.jsonl")
    rejected = list(read_records(whole / "rejections.jsonl", Rejection))
    assert f"| candidates | | {len(problems) + len(rejected)} |" in (whole / "report.md").read_text(encoding="utf-8")
    if method == "webhop":
        assert [p.provenance.split for p in problems].count("heldout") >= 6


TREE = Variable((Edge("capital", Variable((Edge("highest point", Leaf("Mount Orn")),)), inverse=True),))


@pytest.fixture
def rollouts(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    wrong = episode([call_turn(0), final_turn("Oslo")], answer="Oslo", sample=1)
    for made in (wrong, episode(), wrong, episode(evidence=(), sample=2)):
        append_record(run / "episodes.jsonl", "episode", str(made.key), made)
    write_problems(tmp_path / "problems.jsonl", [problem(tree={**to_json(TREE), "path": ["Vesk", "Norland"]})])
    return ["--episodes", str(run), "--problems", str(tmp_path / "problems.jsonl")]


@pytest.mark.parametrize(("kind", "record", "kept"), [("midtrain", Target, 1), ("sft", Episode, 1), ("pairs", Pair, 1)])
def test_a_training_set_is_made_once(rollouts, tmp_path, kind, record, kept):
    out = tmp_path / kind
    for _ in range(2):
        assert main(["data", kind, *rollouts, "--out", str(out)]) == 0
        rows = list(read_records(out / f"{kind}.jsonl", record))
        assert len([row for row in rows if not getattr(row, "id", "").startswith("step/")]) == kept
    rejected = list(read_records(out / "rejections.jsonl", Rejection)) if kind != "midtrain" else []
    assert {r.reason for r in rejected} == {"sft": {"incorrect", "no_evidence"}, "pairs": {"unproved"}}.get(kind, set())
    assert ("median length" in (out / "report.md").read_text(encoding="utf-8")) == (kind == "pairs")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["corpus", "build", "worl"], "no such corpus"),
        (["corpus", "build", "world:x"], "world:SEED"),
        (["corpus", "build", "{bad}"], "line 2: not JSON"),
        (["corpus", "build", "factbook", "contries=3"], "closest known key is countries"),
        (["synth", "webhop", "--corpus", "{missing}"], "no facts there"),
        (["synth", "corpus", "--corpus", "{missing}"], "no corpus there"),
        (["synth", "webhop", "--corpus", "{bad}"], "facts.jsonl, line 1: not a fact"),
        (["synth", "webhop", "--corpus", "{world}", "count=6", "heldout=6"], "too few to hold out 6"),
        (["data", "sft", "--episodes", "{missing}", "--problems", "{problems}"], "no episodes.jsonl there"),
        (["data", "sft", "--episodes", "{missing}"], "problems"),
        (["data", "sft", "--episodes", "{bad}", "--problems", "{bad}/pages.jsonl"], "pages.jsonl:1"),
    ],
)
def test_bad_input_is_one_plain_line(world, tmp_path, capsys, command, message):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "pages.jsonl").write_text('{"url": "https://a.example/", "title": "A", "text": "B."}\nnot json\n')
    (bad / "facts.jsonl").write_text(json.dumps({"subject": "A"}) + "\n")
    write_problems(tmp_path / "problems.jsonl", [problem()])
    places = {"bad": bad, "missing": tmp_path / "missing", "world": world, "problems": tmp_path / "problems.jsonl"}
    out = tmp_path / "out"
    assert main([*(word.format(**places) for word in command), "--out", str(out)]) == 2
    printed = capsys.readouterr().err.strip().split("\n")
    assert message in printed[-1]
    assert "Traceback" not in "".join(printed)
    assert not (out / "problems.jsonl").exists()
