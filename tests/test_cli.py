import errno
import os
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
        (["demo", "--seed", "one"], "--seed: invalid int value: 'one'"),
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
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_become_exit_codes(error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]):
    assert cli.exit_code(raising(error)) == code
    err = capsys.readouterr().err
    assert err.startswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize("error", [ValueError("bug"), ModuleNotFoundError("no", name="ours"), OSError(errno.EIO, "io")])
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
