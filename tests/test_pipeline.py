import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import InputError, RunFailed
from configs.loader import load, resolve
from configs.schema import Config
from data_synthesis.holdout import is_held_out
from data_synthesis.splits import touches, trace
from inference.agent import AgentConfig
from inference.tools.config import WebLimits
from inference.types import Answer, Episode, EpisodeKey, Question, StopReason
from rollout_env.problem import Problem, read_problems
from rollout_env.runner import read_episodes
from scripts.pipeline import Schedule, Step, closure, outside, step
from scripts.stages import demo
from scripts.stages_config import DemoConfig
from scripts.steps.corpus import CorpusSettings
from scripts.steps.folder import LOG, read_done
from scripts.steps.questions import CorpusSource, QuestionsSettings, WebHopSource
from scripts.steps.teacher import TeacherSettings
from scripts.steps.verified import majority
from scripts.workers import run_pipeline
from tests.chatml_tokenizer import write_tokenizer

MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class Nothing(Config):
    n: int = 0


def plain(name: str, *needs: Step, n: int = 0, seed: int = 0) -> Step:
    return step(name, "none", Nothing(n=n), seed, **{f"in_{i}": one for i, one in enumerate(needs)})


def a_base(tmp_path: Path) -> Path:
    """A model folder good enough to be named; nobody opens its weights."""
    folder = tmp_path / "base"
    folder.mkdir()
    for name in MODEL_FILES:
        (folder / name).write_text("{}", encoding="utf-8")
    write_tokenizer(folder)
    return folder


# -- keys and schedule


def test_a_key_changes_with_anything_upstream_and_nothing_else():
    def built(n: int = 0, seed: int = 0) -> dict[str, str]:
        first, other = plain("first", n=n, seed=seed), plain("other")
        return {one.name: one.key for one in closure([plain("last", plain("middle", first), other)])}

    assert built() == built()
    for changed in (built(n=1), built(seed=1)):
        assert {name for name in changed if changed[name] != built()[name]} == {"first", "middle", "last"}


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ("workers=1", {"report"}),
        ("verified.samples=9", {"grpo", "eval_dpo"}),
        ("grpo.updates=3", {"dpo", "eval_dpo", "heldout"}),
        ("data_mid.plans=3", {"train", "data_sft", "heldout", "eval_base"}),
        ("heldout.keep=7", {"heldout_questions", "grpo"}),
        ("countries=50", {"heldout", "eval_base"}),
    ],
)
def test_what_a_setting_of_the_demo_leaves_alone(tmp_path: Path, override: str, kept: set[str]):
    base = f"base={a_base(tmp_path)}"

    def keys(*overrides: str) -> dict[str, str]:
        config = load(DemoConfig, [resolve("demo", "full")], [base, *overrides], environ={})
        return {one.name: one.key for one in closure([demo(config, seed=0)])}

    before, after = keys(), keys(override)
    unchanged = {name for name in before if before[name] == after[name]}
    assert kept <= unchanged
    assert unchanged == set(before) or "report" not in unchanged


def test_a_model_outside_is_known_by_its_content(tmp_path: Path):
    base = a_base(tmp_path)
    before = outside(base, MODEL_FILES).key
    (base / "model.safetensors").write_text("other weights", encoding="utf-8")
    assert outside(base, MODEL_FILES).key != before
    (base / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors"):
        outside(base, MODEL_FILES)


@st.composite
def pipelines(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    for i in range(draw(st.integers(1, 8))):
        needs = draw(st.lists(st.sampled_from(steps), max_size=3, unique_by=id)) if steps else []
        steps.append(plain(f"s{i}", *needs))
    return steps


@given(pipelines(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_every_step_runs_once_after_what_it_needs(steps, workers, rng):
    done = {one.name for one in steps if not one.needs and rng.random() < 0.3}
    schedule = Schedule(closure(steps), workers, done)
    finished, running = set(done), []
    while not schedule.over:
        for one in schedule.start():
            assert {needed.name for needed in one.needs} <= finished
            assert one.name not in finished
            running.append(one.name)
        assert 1 <= len(running) <= workers  # something always runs, never too much
        name = running.pop(rng.randrange(len(running)))
        schedule.finish(name)
        finished.add(name)
    assert finished == {one.name for one in steps}


def test_the_step_that_others_wait_for_starts_first():
    evaluation, training = plain("evaluation"), plain("training")
    steps = closure([evaluation, plain("last", plain("next", training))])
    assert [one.name for one in Schedule(steps, 1).start()] == ["training"]


# -- steps in processes


def worlds(countries: int = 12, count: int = 6) -> list[Step]:
    world = step("world", "corpus", CorpusSettings(source="world", countries=countries), seed=3)
    sets = {"a": (WebHopSource(corpus="world", count=count),), "b": (WebHopSource(corpus="world", count=2),)}
    return closure([step("questions", "questions", QuestionsSettings(sets=sets), seed=3, corpus_world=world)])


def snapshot(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"}


def test_steps_are_done_once_and_a_folder_of_another_run_is_left_alone(tmp_path: Path):
    steps = worlds()
    run_pipeline(tmp_path, "test", steps, workers=2)
    assert all(read_done(tmp_path / one.name, one.key) for one in steps)
    before = snapshot(tmp_path)
    run_pipeline(tmp_path, "test", steps, workers=2)
    assert snapshot(tmp_path) == before
    for others, kind, said in [
        (worlds(countries=13), "test", "world: holds another run"),
        (worlds(count=7), "test", "questions: holds another run"),
        (steps, "demo", "holds another run"),
    ]:
        with pytest.raises(InputError, match=said):
            run_pipeline(tmp_path, kind, others, workers=2)
    assert snapshot(tmp_path) == before


def test_a_failed_step_is_named_with_its_log_and_done_the_next_time(tmp_path: Path):
    steps = worlds()
    run_pipeline(tmp_path, "test", steps[:1], workers=1)
    facts = tmp_path / "world" / "facts.jsonl"
    content = facts.read_text(encoding="utf-8")
    facts.write_text("{not json", encoding="utf-8")
    with pytest.raises(
        RunFailed, match=r"step questions failed: world/facts.jsonl, line 1: not JSON.*\(log: .*log.txt"
    ):
        run_pipeline(tmp_path, "test", steps, workers=1)
    assert "facts.jsonl" in (tmp_path / "questions" / LOG).read_text(encoding="utf-8")
    facts.write_text(content, encoding="utf-8")
    run_pipeline(tmp_path, "test", steps, workers=1)
    assert read_done(tmp_path / "questions", steps[1].key)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux alone")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_child_outlives_the_command(tmp_path: Path, number: signal.Signals, code: int):
    command = [sys.executable, "-m", "scripts.cli", "demo", "--quick", "--out", str(tmp_path / "out")]
    command += [f"base={a_base(tmp_path)}", "countries=3000"]  # a world that takes a while
    with (tmp_path / "err").open("wb") as err:
        parent = subprocess.Popen(command, stderr=err, stdout=err)
    try:
        children = wait_for(lambda: children_of(parent.pid) if (tmp_path / "out" / "world").exists() else [])
        parent.send_signal(number)
        assert parent.wait(timeout=60) == code
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    finally:
        parent.kill()
    assert "Traceback" not in (tmp_path / "err").read_text(encoding="utf-8")


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()


def wait_for(found: Callable[[], object], seconds: float = 20.0):
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    return value


# -- what the steps make


def carry_out(root: Path, *ends: Step) -> None:
    run_pipeline(root, "test", closure(ends), workers=2)


def test_questions_of_two_sets_differ_and_none_touches_the_held_out(tmp_path: Path):
    factbook = step("factbook", "corpus", CorpusSettings(source="factbook"), seed=0)
    world = step("world", "corpus", CorpusSettings(source="world", countries=20), seed=1)
    held_sources = {"heldout": (WebHopSource(corpus="factbook", count=40),)}
    heldout = step("held", "questions", QuestionsSettings(sets=held_sources), seed=1, corpus_factbook=factbook)
    sets = {
        "sft": (
            WebHopSource(corpus="factbook", count=40),
            WebHopSource(corpus="world", count=20),
            CorpusSource(corpus="world", count=5),
        ),
        "rl": (WebHopSource(corpus="world", count=20),),
    }
    train = step(
        "train",
        "questions",
        QuestionsSettings(sets=sets),
        seed=1,
        corpus_factbook=factbook,
        corpus_world=world,
        sealed=heldout / "heldout.jsonl",
    )
    carry_out(tmp_path, train)
    sealed = [trace(problem) for problem in read_problems(tmp_path / "held" / "heldout.jsonl")]
    trained = [p for name in ("sft", "rl") for p in read_problems(tmp_path / "train" / f"{name}.jsonl")]
    assert len(sealed) > 10
    assert {p.provenance.world for p in trained} == {"factbook", "world-1"}
    assert len({p.question.text for p in trained}) == len(trained)
    assert not any(touches(trace(problem), one) for problem in trained for one in sealed)
    held = read_problems(tmp_path / "held" / "heldout.jsonl")
    assert all(is_held_out(countries_of(problem)[0]) for problem in held)
    real = [problem for problem in trained if problem.provenance.world == "factbook"]
    assert real
    assert not any(is_held_out(country) for problem in real for country in countries_of(problem))
    done = read_done(tmp_path / "train", train.key)
    rejections = (tmp_path / "train" / "rejections.jsonl").read_text(encoding="utf-8").splitlines()
    assert done is not None
    assert sum(sum(found["rejected"].values()) for found in done.results.values()) == len(rejections)


def countries_of(problem: Problem) -> list[str]:
    """Those on the way of a question, the one that is asked for or about first."""
    path = problem.provenance.tree["path"]
    return path if problem.question.meta["shape"].endswith("c") else path[1:]


def test_the_teacher_reads_pages_alone(tmp_path: Path):
    """The same outcomes when the facts are deleted, and when it was interrupted."""
    steps = worlds(countries=16, count=12)
    world, questions = steps
    agent = load(AgentConfig, [resolve("agents", "embedded")], ["context_tokens=20000", "sampling.max_tokens=4000"])
    tokenizer = outside(a_base(tmp_path), ["tokenizer.json"]) / "tokenizer.json"
    settings = TeacherSettings(agent=agent, web=WebLimits(), sets={"a": 5, "b": None})
    teacher = step("teacher", "teacher", settings, 3, questions=questions, corpus_world=world, tokenizer=tokenizer)
    outcomes = []
    for name in ("whole", "cut"):
        root = tmp_path / name
        carry_out(root, questions)
        if name == "cut":
            (root / "world" / "facts.jsonl").unlink()
            carry_out_in_two(root, teacher)
        carry_out(root, teacher)
        episodes = read_episodes(root / "teacher").values()
        told = {str(e.key): (e.stop, e.answer, [[n.text for n in t.nodes] for t in e.tries]) for e in episodes}
        kept = [(root / "teacher" / f"{name}.jsonl").read_bytes() for name in ("a", "b")]
        outcomes.append((told, kept))
    assert outcomes[0] == outcomes[1]
    results = json.loads((tmp_path / "whole" / "teacher" / "done.json").read_text(encoding="utf-8"))["results"]
    assert results["a"]["kept"] == 5


def carry_out_in_two(root: Path, teacher: Step) -> None:
    """Leave the step as a kill would: half of its episodes, the last line torn."""
    carry_out(root, teacher)
    folder = root / "teacher"
    lines = (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "episodes.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:40])
    for name in ("done.json", "a.jsonl", "b.jsonl"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("answers", "picked"),
    [
        (["Oslo", "Bern", "bern.", "Rome"], 1),
        (["Oslo", "Bern"], 0),
        ([None, "Bern"], 1),
        ([None, None], None),
    ],
)
def test_majority(answers: list[str | None], picked: int | None):
    episodes = [
        Episode(EpisodeKey("q", i), (), StopReason.ANSWERED, Answer(text) if text else None)
        for i, text in enumerate(answers)
    ]
    found = majority(Question("q", "?"), episodes)
    assert found is (None if picked is None else episodes[picked])


def test_what_the_pipeline_sets_cannot_be_set(tmp_path: Path):
    for override, said in [("grpo.model=x", "model is set by the pipeline"), ("mid.epoch=1", "mid.epochs")]:
        command = [sys.executable, "-m", "scripts.cli", "demo", "--out", str(tmp_path / "out"), override]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=dict(os.environ))
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()
