import argparse
import json
from pathlib import Path

import pytest

from configs.errors import UsageError
from inference.llm.protocol import Completion
from inference.llm.scripted_server import ScriptedServer
from inference.types import Usage
from scripts.cli import main
from scripts.commands import ask
from scripts.compose import load_agent
from tests.chatml_tokenizer import write_tokenizer
from tests.test_recorded_web import NORLAND, write_corpus

QUESTION = "What is the capital of the country whose internet code is .no?"


def turn(tool: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


FINAL = f"""So:
- Norland has .no | "The internet code of Norland is .no." | https://data.example/Norland_in_figures
- the capital of Norland is Vesk | "The capital of Norland is Vesk." | {NORLAND.url}
- Vesk is large | "Vesk is a large town." | {NORLAND.url}
\\boxed{{Vesk}}"""
TURNS = [
    Completion(text, usage=Usage(7, 0, 5))
    for text in (
        "<think>Find the code.</think>" + turn("google_search", q="internet code .no"),
        turn("scrape_and_extract_info", url=NORLAND.url, info_to_extract="capital"),
        FINAL,
    )
]


def settings(base: str, corpus: Path, *more: str) -> list[str]:
    model = {"kind": "openai_chat", "model": "m", "base_url": base, "api_key_env": None}
    web = {"kind": "embedded", "corpus": str(corpus), "transport": "sockets"}
    return [f"model={json.dumps(model)}", f"web={json.dumps(web)}", *more]


def test_the_same_agent_runs_over_http_and_shows_what_its_answer_rests_on(tmp_path, capsys):
    with ScriptedServer(TURNS) as server:
        code = main(["ask", QUESTION, *settings(server.base_url, write_corpus(tmp_path))])
    shown = capsys.readouterr().out
    assert code == 0
    assert shown.startswith("Answer: Vesk\n")
    assert "✓ Norland has .no" in shown
    assert "✓ the capital of Norland is Vesk" in shown
    assert "✗ Vesk is large  (quote not found)" in shown
    assert "3 turns, 1 try, 15 tokens sampled, 21 read" in shown
    assert "stopped: answered" in shown
    assert "The capital of Norland is Vesk." in str(server.requests[2]["messages"][-1]["content"])


def test_no_answer_is_exit_code_1(tmp_path, capsys):
    with ScriptedServer(["I do not know."] * 9) as server:
        limits = ("agent.max_turns=2", "agent.max_retries=0", "agent.final_prompt=null")
        assert main(["ask", QUESTION, *settings(server.base_url, write_corpus(tmp_path), *limits)]) == 1
    assert "No answer (max_turns)." in capsys.readouterr().out


def test_the_model_and_the_web_of_a_config_file(tmp_path, capsys):
    with ScriptedServer(TURNS) as server:
        lines = settings(server.base_url, write_corpus(tmp_path))
        (tmp_path / "ask.yaml").write_text("\n".join(line.replace("=", ": ", 1) for line in lines), encoding="utf-8")
        assert main(["ask", QUESTION, "-a", "embedded", "-c", str(tmp_path / "ask.yaml")]) == 0
    assert server.requests[0]["max_tokens"] == load_agent("embedded").sampling.max_tokens
    assert "Answer: Vesk" in capsys.readouterr().out


UNREACHABLE = "model={kind: openai_chat, model: m, base_url: 'http://127.0.0.1:9/v1', api_key_env: %s}"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no model: name a checkpoint with --model FOLDER"),
        ([UNREACHABLE % "null"], "http://127.0.0.1:9/v1 cannot be reached"),
        ([UNREACHABLE % "NO_SUCH_KEY"], "NO_SUCH_KEY"),
        ([UNREACHABLE % "null", "-a", "mirothinkr"], "the closest one is 'mirothinker'"),
        ([UNREACHABLE % "null", "model.modle=x"], "model.modle"),
        ([UNREACHABLE % "null", "agent.max_turn=3"], "max_turn"),
        (["--model", "no/such/folder"], "no/such/folder: no model folder"),
        (["-c", "no/such/file.yaml"], "no/such/file.yaml"),
    ],
)
def test_what_the_user_can_mend_is_one_plain_line_and_exit_code_2(arguments, complaint, capsys):
    assert main(["ask", QUESTION, *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_an_absent_corpus_and_an_empty_question_are_exit_code_2(tmp_path, capsys):
    with ScriptedServer(TURNS) as server:
        assert main(["ask", QUESTION, *settings(server.base_url, tmp_path / "none")]) == 2
        assert "no corpus there" in capsys.readouterr().err
    assert main(["ask", " "]) == 2


def test_a_missing_search_key_is_told_before_the_first_turn(capsys):
    with ScriptedServer(TURNS) as server:
        model, _ = settings(server.base_url, Path("none"))
        web = "web={kind: serper_jina, search_key_env: NO_SUCH_KEY}"
        assert main(["ask", QUESTION, model, web]) == 2
    assert "NO_SUCH_KEY is not set" in capsys.readouterr().err
    assert server.requests == []


def test_the_answer_as_json(tmp_path, capsys):
    with ScriptedServer(TURNS) as server:
        overrides = settings(server.base_url, write_corpus(tmp_path))
        args = argparse.Namespace(
            question=QUESTION, agent=None, config=[], overrides=overrides, seed=0, json=True, model=None, corpus=None
        )
        assert ask.run(args) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["answer"] == "Vesk"
    assert [link["status"] for link in said["evidence"]] == ["supported", "supported", "quote_not_found"]


def test_a_config_error_is_a_usage_error():
    args = argparse.Namespace(
        question="x", agent=None, config=[], overrides=["web.kind=none"], seed=0, json=False, model=None, corpus=None
    )
    with pytest.raises(UsageError, match=r"web"):
        ask.run(args)


def test_a_model_folder_is_served_in_this_process(tmp_path, capsys):
    pytest.importorskip("torch", reason="the train extra is not installed")
    from training.checkpoint import save_model
    from training.model import new_model, tiny_config

    source, folder = tmp_path / "source", tmp_path / "model"
    source.mkdir()
    write_tokenizer(source)
    model = new_model(tiny_config(512, hidden_size=32, layers=1, experts=4), seed=0)
    save_model(model, folder, tokenizer_from=source)
    few = ("agent.max_turns=2", "agent.sampling.max_tokens=8", "agent.final_prompt=null")
    corpus = str(write_corpus(tmp_path))
    shown = []
    capsys.readouterr()
    for _ in range(2):
        assert main(["ask", QUESTION, "--model", str(folder), "--corpus", corpus, *few]) == 1
        shown.append(capsys.readouterr().out.partition(" read")[0])
    assert "No answer" in shown[0]
    assert "2 turns, 1 try" in shown[0]
    assert shown[0] == shown[1]
