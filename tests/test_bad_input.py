"""What a user can get wrong, and what the system can refuse: one plain line, the right exit code, nothing lost."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from configs.errors import ConfigError, UsageError
from configs.loader import load
from configs.run_folder import open_run, released_on_bad_input
from configs.schema import Config
from configs.secret import hide, read_key
from inference.llm.config import ModelChoice
from inference.llm.protocol import Completion
from inference.llm.scripted_server import ScriptedServer, payload
from inference.local_server import LocalServer
from inference.records import append_record
from inference.web.config import WebChoice
from rollout_env.problem import read_problems, write_problems
from scripts.cli import main
from tests.episodes import episode, problem
from tests.test_recorded_web import write_corpus

ROOT = Path(__file__).parent.parent
TOO_LONG = "x" * 300
NOWHERE = "model={kind: openai_chat, model: m, base_url: 'http://127.0.0.1:9/v1', api_key_env: null}"


@pytest.fixture
def here(tmp_path):
    """A folder with a corpus, problems, episodes, and files of the wrong sort."""
    for name in ("corpus", "run", "emptyfolder"):
        (tmp_path / name).mkdir()
    write_corpus(tmp_path / "corpus")
    write_problems(tmp_path / "problems.jsonl", [problem()])
    append_record(tmp_path / "run" / "episodes.jsonl", "episode", "q1/0/0", episode())
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes("café\n".encode("latin-1"))
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "deep").write_text("[" * 99_999 + "\n", encoding="utf-8")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


WRONG = (
    "missing",
    "emptyfolder",
    "empty",
    "latin",
    "binary",
    "deep",
    "loop",
    "empty/below",
    TOO_LONG,
    "run/episodes.jsonl",
)
TAKES = {
    "ask -c": ["ask", "q", "-c", "{}"],
    "corpus": ["corpus", "build", "{}", "--out", "out"],
    "synth webhop": ["synth", "webhop", "--corpus", "{}", "--out", "out"],
    "synth corpus": ["synth", "corpus", "--corpus", "{}", "--out", "out"],
    "data problems": ["data", "pairs", "--episodes", "run", "--problems", "{}", "--out", "out"],
    "rollout problems": ["rollout", "--problems", "{}", "--out", "out", NOWHERE],
    "rollout agent": ["rollout", "--problems", "problems.jsonl", "-a", "./{}", "--out", "out", NOWHERE],
    "rollout model": ["rollout", "--problems", "problems.jsonl", "--model", "{}", "--out", "out"],
    "eval": ["eval", "{}", "--out", "out", NOWHERE],
    "eval score": ["eval", "score", "{}"],
    "eval compare": ["eval", "compare", "{}", "{}"],
    "demo base": ["demo", "--out", "out", 'base="{}"'],
    "demo -c": ["demo", "--out", "out", "-c", "{}", "workers=0"],
}


@pytest.mark.parametrize("command", TAKES.values(), ids=TAKES)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda name: name[:12])
def test_a_path_of_the_wrong_sort_is_one_line_and_leaves_nothing(here, monkeypatch, capsys, command, wrong):
    monkeypatch.chdir(here)
    assert main([word.replace("{}", wrong) for word in command]) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(r"error: .+\n", said)
    assert not Path("out").exists()


@pytest.mark.parametrize("out", ["problems.jsonl", "run", "loop", "empty/below", TOO_LONG])
@pytest.mark.parametrize(
    "command",
    [
        ["corpus", "build", "world", "countries=4"],
        ["demo"],
        ["study", "stages"],
        ["data", "sft", "--episodes", "run", "--problems", "problems.jsonl"],
        ["rollout", "--problems", "problems.jsonl", NOWHERE],
        ["eval", "problems.jsonl", NOWHERE],
    ],
    ids=lambda command: command[0],
)
def test_a_place_that_is_not_ours_is_left_alone(here, monkeypatch, capsys, command, out):
    monkeypatch.chdir(here)
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert main([*command, "--out", out]) == 2
    assert re.fullmatch(r"error: .+choose another --out\n", capsys.readouterr().err)
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_the_corrected_command_has_the_folder_of_the_one_that_failed(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    command = ["rollout", "--problems", "problems.jsonl", "--corpus", "corpus", "--out", "out", "agent.max_retries=0"]
    assert main([*command, NOWHERE]) == 2
    assert "cannot be reached" in capsys.readouterr().err
    with ScriptedServer(["\\boxed{Vesk}"] * 9) as server:
        assert main([*command, NOWHERE, f"model.base_url={server.base_url}"]) == 0
    shutil.copy("latin", "run/episodes.jsonl")
    made = ["data", "sft", "--problems", "problems.jsonl", "--out", "set"]
    assert main([*made, "--episodes", "run"]) == 2
    assert main([*made, "--episodes", "empty"]) == 2
    assert "holds no episode" in capsys.readouterr().err
    append_record(here / "good.jsonl", "episode", "q1/0/0", episode())
    assert main([*made, "--episodes", "good.jsonl"]) == 0


class Nothing(Config):
    pass


@pytest.mark.parametrize("kept", ["rows.jsonl", "checkpoints/1"])
def test_a_folder_with_something_worth_keeping_stays_claimed(tmp_path, kept):
    folder = open_run(tmp_path / "out", "test", Nothing())

    def work() -> None:
        with released_on_bad_input(folder, "inputs.json", "checkpoints"):
            (folder.path / "inputs.json").touch()
            (folder.path / kept).parent.mkdir(exist_ok=True)
            (folder.path / kept).touch()
            raise ConfigError("too late")

    with pytest.raises(UsageError):
        work()
    assert {entry.name for entry in folder.path.iterdir()} >= {"run.json", "config.yaml", "inputs.json"}
    assert (folder.path / kept).exists()
    assert open_run(folder.path, "test", Nothing()).resumed


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["corpus", "build", "world:²"], 2, "world:SEED with a whole number"),
        (["corpus", "build", "world:"], 2, "world:SEED with a whole number"),
        (["corpus", "build", "factbook:3"], 2, "no such corpus"),
        (["corpus", "build", "world", "source=elsewhere"], 2, "elsewhere: no such corpus"),
        (["corpus", "build", "problems.jsonl"], 2, "has to be called pages.jsonl"),
        (["corpus", "build", "twice"], 2, "two pages have the address https://a.example/, on lines 1 and 3"),
        (["synth", "corpus", "--corpus", "one", "count=2"], 1, "no question could be made; out/report.md says why"),
        (["data", "sft", "--episodes", "run", "--problems", "other.jsonl"], 1, "no row could be made"),
        (["data", "sft", "--episodes", "run"], 2, "problems: this key is required, in a file or as problems=VALUE"),
        (
            ["rollout", "--problems", "problems.jsonl", "-a", "./empty", NOWHERE],
            2,
            "empty: name, system_prompt, tools:",
        ),
    ],
)
def test_what_is_wrong_is_said(here, monkeypatch, capsys, arguments, code, complaint):
    monkeypatch.chdir(here)
    row = json.dumps({"url": "https://a.example/", "title": "A", "text": "B."}) + "\n"
    for name, text in (("one", row), ("twice", row + "\n" + row)):
        Path(name).mkdir()
        Path(name, "pages.jsonl").write_text(text, encoding="utf-8")
    write_problems(Path("other.jsonl"), [problem("q2")])
    assert main([*arguments, "--out", "out"]) == code
    assert complaint in capsys.readouterr().err.splitlines()[-1]


def test_counts_of_an_earlier_run_that_cannot_be_read(tmp_path, capsys):
    open_run(tmp_path / "out", "demo", Nothing())
    (tmp_path / "out" / "about.json").write_text("[1", encoding="utf-8")
    assert main(["demo", "--out", str(tmp_path / "out")]) == 2
    assert re.fullmatch(r"error: .+about\.json: unreadable; .+\n", capsys.readouterr().err)


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from scripts.cli import main
sys.exit(main(sys.argv[2:]))
"""


def cut_short(most: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command where no file can grow beyond `most` bytes: what a full disk is like, for every user."""
    command = [sys.executable, "-c", LIMITED, str(most), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("most", [0, 100, 6_000])
def test_a_full_disk_loses_nothing(tmp_path, most):
    corpus = tmp_path / "world"
    assert main(["corpus", "build", "world:5", "--out", str(corpus), "countries=16"]) == 0
    command = ["synth", "webhop", "--corpus", str(corpus), "count=20"]
    done = cut_short(most, *command, "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert re.fullmatch(r"error: .+: File too large.*", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    for name in ("problems.jsonl", "rejections.jsonl", "report.md"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


class Endpoint(LocalServer):
    """A chat endpoint, a search server and a reader that repeat every key they are given, wherever they can."""

    def __init__(self) -> None:
        self.chats = 0
        self.hold = False
        super().__init__(
            Starlette(
                routes=[
                    Route("/v1/models", self._models),
                    Route("/v1/chat/completions", self._chat, methods=["POST"]),
                    Route("/search", self._search, methods=["POST"]),
                    Route("/r/{url:path}", self._read),
                ]
            )
        )

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"data": []})

    async def _chat(self, request: Request) -> Response:
        self.chats += 1
        if self.hold:
            await asyncio.sleep(60)
        key = request.headers.get("authorization", "")
        if self.chats == 1:
            return JSONResponse({"error": {"message": f"try again, {key}"}}, status_code=503)
        call = {"name": "google_search", "arguments": {"q": key}}
        if self.chats == 3:
            call = {
                "name": "scrape_and_extract_info",
                "arguments": {"url": "https://a.example", "info_to_extract": key},
            }
        text = f"{key}<tool_call>{json.dumps(call)}</tool_call>" if self.chats < 5 else f"{key} \\boxed{{{key}}}"
        return JSONResponse(payload(Completion(text), "m") | {"system_fingerprint": key})

    async def _search(self, request: Request) -> Response:
        key = request.headers.get("x-api-key", "")
        if self.chats == 4:
            return JSONResponse({"message": f"no credit left on {key}"}, status_code=403)
        hit = {"title": key, "link": "https://a.example", "snippet": key}
        return JSONResponse({"searchParameters": {}, "organic": [hit]})

    async def _read(self, request: Request) -> Response:
        return PlainTextResponse(f"Title: A\n\nMarkdown Content:\n{request.headers.get('authorization')}.\n")


KEYS = {"OPENAI_API_KEY": "sk-model-4711", "SERPER_API_KEY": "serper-4712", "JINA_API_KEY": "jina-4713"}


@pytest.mark.parametrize("refused", [False, True])
def test_a_key_is_nowhere_in_what_a_run_leaves(here, monkeypatch, capfd, refused):
    monkeypatch.chdir(here)
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    with Endpoint() as server:
        model = {
            "kind": "openai_chat",
            "model": "m",
            "base_url": f"{server.base}/v1",
            "retry": {"first_wait_seconds": 0},
        }
        model["retry"]["tries"] = 1 if refused else 2
        web = {"kind": "serper_jina", "search_url": f"{server.base}/search", "reader_url": f"{server.base}/r"}
        settings = [f"model={json.dumps(model)}", f"web={json.dumps(web)}", "agent.max_turns=5", "retries=0"]
        done = main(["eval", "problems.jsonl", "--out", "out", *settings])
    assert done == 1  # the model, or else the search server, refuses its key: the one episode errs, and is no answer
    left = {str(path): path.read_text(encoding="utf-8") for path in Path("out").rglob("*") if path.is_file()}
    left["printed"] = "".join(capfd.readouterr())
    assert not [(name, key) for name, text in left.items() for key in KEYS.values() if key in text]
    assert "***" in left["printed" if refused else "out/episodes.jsonl"]
    assert "no credit left on ***" in left["out/episodes.jsonl"] or refused


@pytest.mark.parametrize(
    ("schema", "setting"),
    [
        (ModelChoice, "model={kind: openai_chat, model: m, base_url: 'http://h/v1', api_key_env: %s}"),
        (ModelChoice, "model={kind: openai_chat, model: m, base_url: 'http://me:%s@h/v1'}"),
        (ModelChoice, "model={kind: openai_chat, model: m, base_url: 'http://h/v1', api_key: %s}"),
        (WebChoice, "web={kind: serper_jina, search_key_env: %s}"),
        (WebChoice, "web={kind: serper_jina, reader_key_env: %s}"),
        (WebChoice, "web={kind: serper_jina, reader_url: 'https://%s@r.jina.ai'}"),
    ],
)
def test_a_key_put_into_a_config_is_refused_and_not_repeated(schema, setting):
    for key in ("sk-proj-4711", "jina_4711", "0f3a4711c9"):
        with pytest.raises(ConfigError) as caught:
            load(schema, [], [setting % key], {})
        assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/v1", "http://127.0.0.1:x/v1", "http://[::1/v1", "h/v1", ""])
def test_what_is_no_address_is_said(capsys, url):
    assert main(["ask", "q", NOWHERE, f"model.base_url='{url}'"]) == 2
    assert re.fullmatch(r"error: (override )?model\.base_url: .+\n", capsys.readouterr().err)


def test_a_name_that_is_not_utf_8_is_said(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    name = os.fsdecode(b"caf\xe9")
    for arguments in (
        ["synth", "webhop", "--corpus", name],
        ["rollout", "--problems", "p", "--model", name],
        ["demo", f"base={name}"],
    ):
        assert main([*arguments, "--out", "out"]) == 2
        assert re.fullmatch(r"error: .+(UTF-8|not allowed).+\n", capsys.readouterr().err)
    assert main(["corpus", "build", "world", "countries=4", "--out", name]) == 0
    assert Path(name, "manifest.json").is_file()


def test_a_key_is_read_whole_or_refused_by_its_variable():
    assert read_key({"K": " sk-1 \n"}, "K") == "sk-1"
    assert read_key({"K": " "}, "K") is None
    for key in ("sk-\n2", "sk 2", "sk-é"):
        with pytest.raises(ConfigError, match=r"^K: ") as caught:
            read_key({"K": key}, "K")
        assert key not in str(caught.value)
    assert hide("a sk-4711, a", "sk-4711") == "a ***, a"
    assert hide("EMPTY or none", "EMPTY") == "EMPTY or none"


LONE = "\\ud800"
"""How JSON spells half a character, which nothing can be sent or written with."""
CALL = f'{{"id": "{LONE}", "function": {{"name": "google_search", "arguments": {{"q": "{LONE}"}}}}}}'
SPOILT = {
    "content": f'{{"content": "{LONE}"}}',
    "thought": f'{{"content": "Hm.", "reasoning_content": "{LONE}"}}',
    "call": f'{{"tool_calls": [{CALL}]}}',
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_half_a_character_from_outside_spoils_no_episode(here, monkeypatch, capsys, spoilt):
    """In a question, in what a model says and in what a search finds."""
    monkeypatch.chdir(here)
    chats = []

    async def chat(request: Request) -> Response:
        chats.append(await request.json())
        message = SPOILT[spoilt] if len(chats) == 1 else '{"content": "\\\\boxed{Vesk}"}'
        body = f'{{"choices": [{{"finish_reason": "stop", "message": {message}}}]}}'
        return Response(body, media_type="application/json")

    async def search(request: Request) -> Response:
        return Response(f'{{"searchParameters": {{}}, "organic": [{{"link": "l", "title": "{LONE}"}}]}}')

    routes = [
        Route("/v1/models", search),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/search", search, methods=["POST"]),
    ]
    with LocalServer(Starlette(routes=routes)) as server:
        model = {"kind": "openai_chat", "model": "m", "base_url": f"{server.base}/v1", "api_key_env": None}
        web = {"kind": "serper_jina", "search_url": f"{server.base}/search", "reader_url": f"{server.base}/r"}
        settings = [f"model={json.dumps(model)}", f"web={json.dumps(web)}", "agent.calls=native"]
        assert main(["ask", os.fsdecode(b"caf\xe9?"), "--json", *settings]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "Vesk"
    assert len(chats) == 2
    assert ("\ufffd" in json.dumps(chats[1]["messages"][-1], ensure_ascii=False)) is (spoilt == "call")


def interrupted(*arguments: str, when) -> tuple[int, float, str]:
    """(exit code, seconds from Ctrl-C to the end, stderr)."""
    command = [sys.executable, "-m", "scripts.cli", *arguments]
    child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8")
    try:
        while not when() and child.poll() is None:
            time.sleep(0.01)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1]
    finally:
        child.kill()
    return child.returncode, time.monotonic() - began, said


@pytest.mark.parametrize("command", ["ask", "rollout", "synth"])
def test_ctrl_c_ends_a_command_at_once(here, tmp_path, command):
    with Endpoint() as server:
        server.hold = True
        model = f"model={{kind: openai_chat, model: m, base_url: '{server.base}/v1', api_key_env: null}}"
        out = tmp_path / "out"
        commands = {
            "ask": ["ask", "q", model, "--corpus", str(here / "corpus")],
            "rollout": ["rollout", "--problems", str(here / "problems.jsonl"), "--out", str(out), model],
            "synth": ["synth", "webhop", "--corpus", str(here / "world"), "--out", str(out), "count=100000"],
        }
        if command == "synth":
            assert main(["corpus", "build", "world:5", "--out", str(here / "world"), "countries=8"]) == 0
        begun = (out / "accepted.jsonl").exists if command == "synth" else lambda: server.chats > 0
        code, seconds, said = interrupted(*commands[command], when=begun)
    assert code == 130
    assert said.splitlines()[-1] == "interrupted; the same command goes on where it stopped"
    assert "Traceback" not in said
    assert seconds < 30
    if command == "rollout":
        assert read_problems(out / "problems.jsonl")


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_closed_output_is_no_crash():
    line = f"exec '{sys.executable}' -m scripts.cli eval compare nowhere nowhere >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], cwd=ROOT, check=False).returncode == 2
