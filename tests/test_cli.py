import errno
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs.errors import ConfigError, ContextOverflow, LLMError, RunFailed
from scripts import cli

ROOT = Path(__file__).parent.parent


def raising(error: BaseException):
    def action() -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["dmeo"], "no command 'dmeo'; the closest one is 'demo'"),
        (["train", "sfd", "--out", "x"], "no stage 'sfd'; the closest one is 'sft'"),
        (["train", "sft"], "required: --out"),
        (["demo", "--seed", "one"], "--seed: expected a whole number from 0"),
        (["demo", "--seed", "-1"], "not '-1'"),
        (["demo", "--seed", "99999999999"], "not '99999999999'"),
        (["demo", "--out", ""], "--out: the path is empty"),
        (["demo", "-c", " "], "the path is empty"),
        (["eval", "p.jsonl", "--k", "0"], "--k: expected a whole number from 1"),
        (["demo", "--quik"], "unrecognized arguments: --quik"),
        (["ask"], "required: QUESTION"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(argv: list[str], part: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert part in err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("a.yaml: bad"), 2, "error: a.yaml: bad"),
        (ModuleNotFoundError("no", name="torch.nn"), 2, "error: this needs torch, which is not installed"),
        (RunFailed("no reward"), 1, "error: no reward"),
        (LLMError("endpoint down"), 1, "error: endpoint down"),
        (ContextOverflow("too long"), 1, "error: too long"),
        (OSError(errno.ENOSPC, "No space left on device", "run/x"), 1, "error: run/x: No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "run/x"), 2, "error: run/x: Read-only file system"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "xx"), 2, "error: xx: File name too long"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_become_exit_codes(error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]):
    assert cli.exit_code(raising(error)) == code
    err = capsys.readouterr().err
    assert err.startswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bug"),
        ModuleNotFoundError("no", name="ours"),
        OSError(errno.EIO, "io"),
        OSError(errno.ENOENT, "No such file or directory", "forgotten"),
        PermissionError(errno.EACCES, "no path that somebody named"),
    ],
)
def test_bugs_are_not_hidden(error: Exception):
    with pytest.raises(type(error)):
        cli.exit_code(raising(error))


def test_overrides_may_stand_anywhere():
    args = cli.parse(["train", "sft", "lr=1e-3", "-c", "a.yaml", "--out", "run", "k.x=[1, 2]", "--config", "b.yaml"])
    assert (args.command, args.stage, args.out, args.seed) == ("train", "sft", Path("run"), 0)
    assert args.config == ["a.yaml", "b.yaml"]
    assert args.overrides == ["lr=1e-3", "k.x=[1, 2]"]


def test_a_repeated_option_does_not_leak_into_the_next_parse():
    cli.parse(["demo", "-c", "a.yaml"])
    assert cli.parse(["demo"]).config == []


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_and_a_handler(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    assert cli.COMMANDS[command].summary[:40] in " ".join(capsys.readouterr().out.split())
    assert (ROOT / "scripts" / "commands" / f"{command}.py").is_file()


@pytest.mark.parametrize("command", cli.COMMANDS.values(), ids=cli.COMMANDS)
def test_what_help_shows_is_there(command: cli.Command):
    for example in command.examples:
        first, *words = shlex.split(example)
        assert first == "proofhound"
        assert cli.COMMANDS[cli.parse(words).command] is command
    for pattern in re.findall(r"configs/[\w/*.]+\.yaml", " ".join([command.settings, *command.examples])):
        found = list(ROOT.glob(re.sub("METHOD|KIND|STAGE", "*", pattern)))
        assert found, pattern


def test_help_imports_the_standard_library_alone():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from scripts.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print('OTHERS', sorted(new - sys.stdlib_module_names - {'scripts', 'configs'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert "  demo " in done.stdout
    assert done.stdout.endswith("OTHERS []\n")


def test_help_is_no_slower_than_that_of_trl():
    def seconds(*argv: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *argv], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    trl = "import sys; sys.argv = ['trl', '--help']; from trl.cli.main import main; main()"
    ours = min(seconds("-m", "scripts.cli", "--help") for _ in range(3))
    assert ours <= seconds("-c", trl)


def test_a_reader_that_leaves_early_is_no_crash():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "scripts.cli", "--help"]
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    os.close(write)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not there")
def test_output_that_cannot_be_written_is_told():
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "scripts.cli", "--help"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert done.stderr == "error: output: No space left on device; what was written before is kept\n"


def test_what_the_terminal_cannot_show_costs_a_character_and_no_more():
    code = "from scripts import cli; cli._open_output(); print('a \\u2713 \\udce9 b')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "a ? ? b\n"
