"""The commands `rollout` and `eval` over a scripted endpoint and a recorded web."""

import hashlib
import json

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from configs.loader import load
from eval.score import read_scores
from inference.llm.scripted_server import Reply, ScriptedServer
from inference.local_server import LocalServer
from inference.types import Question, StopReason
from rollout_env.outcome import Outcome
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance, write_problems
from rollout_env.runner import EPISODES, read_episodes
from scripts.cli import main
from scripts.rollouts import RunConfig
from tests.test_ask import TURNS, settings
from tests.test_recorded_web import write_corpus


@pytest.fixture
def problems(tmp_path):
    """Two problems; the scripted agent answers Vesk to both."""
    path = tmp_path / "set" / "problems.jsonl"
    golds = {"right": ("vesk",), "wrong": ("Oslo",)}
    write_problems(
        path, [Problem(Question(n, f"{n}?"), Gold(g), Provenance(ProblemKind.WEBHOP, hops=2)) for n, g in golds.items()]
    )
    return path


def arguments(server, tmp_path):
    return settings(server.base_url, write_corpus(tmp_path), "agent.max_retries=0")


def test_an_evaluation_its_resumption_and_its_second_scoring(tmp_path, problems, capsys):
    out = tmp_path / "run"
    with ScriptedServer(TURNS) as server:
        command = ["eval", str(problems), "--out", str(out), *arguments(server, tmp_path)]
        assert main(command) == 0
        line = capsys.readouterr().out.splitlines()[0]
        assert line.startswith("50.0% ± 50.0 (95% 9–91%; 2 questions × 1; judge exact")
        assert [s.samples[0].outcome for s in read_scores(out)] == [Outcome.CORRECT, Outcome.INCORRECT]
        page = (out / "report.html").read_text(encoding="utf-8")
        assert "equals no gold answer" in page
        assert "The capital of Norland is Vesk." in page

        asked = len(server.requests)
        lines = (out / EPISODES).read_text(encoding="utf-8").splitlines(keepends=True)
        (out / EPISODES).write_text(lines[0] + lines[1][:40], encoding="utf-8")  # a torn line: one episode is lost
        assert main(command) == 0
        assert len(server.requests) == asked + len(TURNS)
        assert main([*command, "--k", "2"]) == 0
        assert len(server.requests) == asked + 3 * len(TURNS)
        assert main([*command, "--k", "2", "limit=1"]) == 0
        assert len(server.requests) == asked + 3 * len(TURNS)

    capsys.readouterr()
    assert main(["eval", "score", str(out)]) == 0
    assert "2 questions × 2" in capsys.readouterr().out
    assert main(["eval", "compare", str(out), str(out)]) == 0
    assert "difference +0.0 points" in capsys.readouterr().out


def test_gold_never_reaches_the_model(tmp_path, problems):
    with ScriptedServer(TURNS) as server:
        assert main(["eval", str(problems), "--out", str(tmp_path / "run"), *arguments(server, tmp_path)]) == 0
    assert "Oslo" not in json.dumps(server.requests)
    assert "Oslo" not in (tmp_path / "run" / EPISODES).read_text(encoding="utf-8")


def test_a_rollout_tries_errored_episodes_again(tmp_path, problems, capsys):
    out = tmp_path / "run"
    failing = True

    def script(body):
        if failing and "wrong?" in json.dumps(body["messages"]):
            return Reply(500, {"error": "down"})
        return TURNS[sum(message["role"] == "assistant" for message in body["messages"])]

    with ScriptedServer(script) as server:
        command = ["rollout", "--problems", str(problems), "--out", str(out), *arguments(server, tmp_path)]
        command += ["retries=0", "model.retry.tries=1"]
        assert main(command) == 0
        shown = capsys.readouterr()
        assert "1 of 2 episodes errored" in shown.err
        assert "1 answered" in shown.out
        failing = False
        assert main(command) == 0
    assert all(episode.stop is StopReason.ANSWERED for episode in read_episodes(out).values())
    assert "2 answered" in capsys.readouterr().out


def test_when_everything_errors_the_run_failed(tmp_path, problems, capsys):
    with ScriptedServer(lambda body: Reply(500, {"error": "down"})) as server:
        command = ["eval", str(problems), "--out", str(tmp_path / "run"), *arguments(server, tmp_path)]
        assert main([*command, "retries=0", "model.retry.tries=1"]) == 1
    assert "every episode errored" in capsys.readouterr().err
    assert not (tmp_path / "run" / "scores.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["eval", "nowhere.jsonl", "--out", "x"], "no model"),
        (["eval", "nowhere.jsonl"], "--out DIR is required"),
        (["eval", "a.jsonl", "b.jsonl", "--out", "x"], "one benchmark at a time"),
        (["eval", "nowhere.jsonl", "--out", "x", "--model", "m"], "nowhere.jsonl: cannot read problems"),
        (["eval", "nowhere.jsonl", "--out", "x", "--model", "m", "--k", "0"], "--k: expected a whole number from 1"),
        (["eval", "nowhere.jsonl", "--out", "x", "judg=exact"], "closest known key is judge"),
        (["eval", "score", "nowhere"], "nowhere"),
        (["eval", "compare", "nowhere"], "name two run folders"),
        (["eval", "compare", "nowhere", "nowhere"], "no scores.jsonl there"),
        (["rollout", "--problems", "nowhere.jsonl", "--out", "x"], "no model"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, command, says):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_folder_of_another_run_is_refused(tmp_path, problems, capsys):
    out = tmp_path / "run"
    with ScriptedServer(TURNS) as server:
        command = ["eval", str(problems), "--out", str(out), *arguments(server, tmp_path)]
        assert main(command) == 0
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        assert main([*command, "--seed", "1"]) == 2
        assert "holds another run" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_all_that_a_run_was_told_is_saved(tmp_path, problems, capsys):
    out = tmp_path / "run"

    def saved():
        return load(RunConfig, [out / "config.yaml"], environ={})

    with ScriptedServer(TURNS) as server:
        command = ["eval", str(problems), "--out", str(out), "--seed", "3", *arguments(server, tmp_path), "retries=5"]
        assert main([*command, "agent.max_turns=7", "examples=1"]) == 0
        told, claim = saved(), (out / "run.json").read_bytes()
        assert (told.agent.name, told.agent.max_turns, told.agent.max_retries) == ("embedded", 7, 0)
        assert (told.model.base_url, told.web.corpus) == (server.base_url, str(tmp_path))
        assert (told.samples, told.retries, told.limit, told.concurrency) == (1, 5, None, 8)
        assert (told.seed, told.judge, told.examples) == (3, "exact", 1)
        assert told.problems == str(problems)
        assert told.problems_sha256 == hashlib.sha256(problems.read_bytes()).hexdigest()

        assert main([*command, "agent.max_turns=7", "--k", "2", "limit=1", "retries=0"]) == 0
        extended = told.model_copy(update={"samples": 2, "limit": 1, "retries": 0, "examples": 3})
        assert (saved(), (out / "run.json").read_bytes()) == (extended, claim)
        assert main([*command, "agent.max_turns=8", "--k", "3"]) == 2
        assert (saved(), (out / "run.json").read_bytes()) == (extended, claim)


def test_a_rollout_saves_it_too(tmp_path, problems):
    out = tmp_path / "run"
    with ScriptedServer(TURNS) as server:
        command = ["rollout", "--problems", str(problems), "--out", str(out), *arguments(server, tmp_path)]
        assert main([*command, "--samples", "2"]) == 0
    told = load(RunConfig, [out / "config.yaml"], environ={})
    assert (told.samples, told.judge, told.problems, told.examples) == (2, "exact", str(problems), None)


def test_a_wrong_answer_after_an_outage_counts_as_errored_and_is_tried_again(tmp_path, problems, capsys):
    out, down = tmp_path / "run", True

    def answer(request):
        if down and request.url.path.endswith("/search"):
            return PlainTextResponse("down", status_code=500)
        hit = {"title": "Norland", "link": "https://a.example", "snippet": "Norland."}
        return JSONResponse({"organic": [hit]}) if request.method == "POST" else PlainTextResponse("Vesk.")

    routes = [Route("/{path:path}", answer, methods=["GET", "POST"])]
    with ScriptedServer(TURNS) as server, LocalServer(Starlette(routes=routes)) as site:
        web = {"kind": "serper_jina", "search_url": f"{site.base}/search", "reader_url": f"{site.base}/r"}
        web["fetch"] = {"retries": 0}
        model, _, *more = arguments(server, tmp_path)
        command = ["eval", str(problems), "--out", str(out), model, f"web={json.dumps(web)}", *more, "retries=1"]
        assert main(command) == 0
        shown = capsys.readouterr()
        assert "2 of 2 episodes met an unavailable tool (The tool is unavailable now" in shown.err
        assert "1 errored; 2 met a tool outage)" in shown.out
        assert [s.samples[0].outcome for s in read_scores(out)] == [Outcome.CORRECT, Outcome.ERRORED]
        # right: three turns; wrong: three, and once more the two that follow the failed call
        assert len(server.requests) == 3 + 3 + 2
        down = False
        assert main(command) == 0
        assert len(server.requests) == 8 + 2
    assert [s.samples[0].outcome for s in read_scores(out)] == [Outcome.CORRECT, Outcome.INCORRECT]
    assert "1 met a tool outage" in capsys.readouterr().out
