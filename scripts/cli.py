"""The command line: `COMMANDS` says what each command takes, `main` runs one and turns errors into exit codes.

* Parse first, import after: until a command line is known to be good nothing but the standard library is imported, then
  `scripts.commands.<command>`, whose `run(args: argparse.Namespace) -> int` does the work.
* Every command takes `-c/--config FILE` (repeatable) and any number of `key.path=value` overrides, before, between or
  after its options: `args.config: list[str]`, `args.overrides: list[str]`, both for `configs.loader.load`.
* Exit codes: 0 done; 1 the run failed; 2 bad usage or input; 130 interrupted. A failure that is no bug of ours is one
  plain line on stderr.
* What the terminal's encoding cannot show costs a character, not the result.
"""

import argparse
import errno
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from configs import __version__
from configs.errors import DISK_FULL, MissingExtraError, ProofhoundError, StorageError, UsageError

TRAIN_EXTRA = {"accelerate", "datasets", "deepspeed", "peft", "torch", "transformers", "trl", "wandb"}
MOST_SEED = 2**31 - 1
_UNUSABLE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
)
"""What is wrong with a path that somebody named, wherever we meet it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of `argparse.ArgumentParser.add_argument`."""

    names: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    summary: str
    arguments: tuple[Argument, ...]
    settings: str
    """Which settings it takes, or the packaged files that hold them."""
    examples: tuple[str, ...]


def _argument(*names: str, **options: Any) -> Argument:
    return Argument(names, options)


def _choice(name: str, *values: str, text: str) -> Argument:
    """A positional argument that is one of `values`; another word is answered with the closest."""

    def parse(word: str) -> str:
        if word not in values:
            raise argparse.ArgumentTypeError(f"no {name} {word!r}{_closest(word, values)}")
        return word

    return _argument(name, metavar="|".join(values), type=parse, help=text)


def _named(word: str) -> str:
    """The empty path, which an unset variable gives, would quietly mean the working directory."""
    if not word.strip():
        raise argparse.ArgumentTypeError("the path is empty")
    return word


def _path(word: str) -> Path:
    return Path(_named(word))


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(word: str) -> int:
        try:
            number = int(word)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, not {word[:40]!r}")
        return number

    return parse


def _number(name: str, default: int, least: int, most: int, text: str) -> Argument:
    return _argument(name, type=_whole(least, most), default=default, metavar="N", help=f"{text} (default: {default})")


def _out(default: str | None = None) -> Argument:
    text = f"run folder (default: {default})" if default else "run folder"
    return _argument("--out", type=_path, metavar="DIR", required=default is None, default=default, help=text)


CONFIG = _argument(
    "-c", "--config", type=_named, action="append", default=[], metavar="FILE", help="YAML; repeat to merge"
)
SEED = _number("--seed", 0, 0, MOST_SEED, "everything drawn follows from it")
CONCURRENCY = _number("--concurrency", 8, 1, 10_000, "episodes at a time")
QUICK = _argument("--quick", action="store_true", help="a small version, minutes long")
AGENT = _argument(
    "-a",
    "--agent",
    default="embedded",
    metavar="AGENT",
    help="embedded, mirothinker or a YAML file (default: embedded)",
)
MODEL = _argument(
    "--model",
    type=_path,
    metavar="DIR",
    help="checkpoint folder to serve in this process; without it the endpoint that the config names is asked",
)
CORPUS = _argument(
    "--corpus", type=_path, metavar="DIR", help="corpus to search; without it the web that the config names"
)
PROBLEMS = _argument("--problems", type=_path, metavar="FILE", required=True, help="problems.jsonl")

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "the whole pipeline on the embedded default, with a report",
        (CONFIG, _out("runs/demo"), SEED, QUICK),
        "configs/demo/full.yaml holds every setting, configs/demo/quick.yaml what --quick changes.",
        (
            "proofhound demo --quick --out runs/quick",
            "proofhound demo grpo.updates=40",
        ),
    ),
    "corpus": Command(
        "documents and their link graph from SOURCE: factbook, world (generated), or pages.jsonl",
        (
            _choice("action", "build", text="what to do"),
            _argument(
                "source", metavar="SOURCE", help="factbook, world, world:SEED, or a pages.jsonl or the folder it is in"
            ),
            CONFIG,
            _out(),
            SEED,
        ),
        "source, seed, countries (size of a world), real_names.",
        (
            "proofhound corpus build factbook --out runs/factbook",
            "proofhound corpus build world:7 countries=60 --out runs/world7",
            "proofhound corpus build my/pages.jsonl --out runs/mine",
        ),
    ),
    "synth": Command(
        "questions that can be proved: problems, rejections and a report",
        (
            _choice("method", "corpus", "webhop", text="which generator"),
            _argument("--corpus", type=_path, metavar="DIR", required=True, help="corpus to ask about"),
            CONFIG,
            _out(),
            SEED,
        ),
        "those of configs/synth/METHOD.yaml: count, heldout, generator.*",
        ("proofhound synth webhop --corpus runs/factbook --out runs/questions count=300 heldout=60",),
    ),
    "data": Command(
        "training sets from problems and episodes",
        (
            _choice("kind", "midtrain", "sft", "pairs", text="which training set"),
            _argument("--episodes", type=_path, metavar="DIR", required=True, help="run folder of rollouts"),
            _argument(
                "--problems",
                type=_path,
                metavar="FILE",
                help="problems.jsonl: gold to tell right from wrong; needed unless a config file names it",
            ),
            CONFIG,
            _out(),
            SEED,
        ),
        "those of configs/data/KIND.yaml.",
        ("proofhound data sft --episodes runs/episodes --problems runs/questions/problems.jsonl --out runs/sft_set",),
    ),
    "train": Command(
        "one stage; torchrun, accelerate and deepspeed launch the same module",
        (_choice("stage", "mid", "sft", "dpo", "grpo", text="which stage"), CONFIG, _out(), SEED),
        "those of configs/train/STAGE.yaml. model and data (for grpo model, problems and web.corpus) have to be given.",
        (
            "proofhound train sft --out runs/sft model=training/base 'data=[runs/sft_set/sft.jsonl]'",
            "proofhound train grpo --out runs/grpo model=runs/sft/model problems=p.jsonl web.corpus=runs/factbook",
        ),
    ),
    "rollout": Command(
        "episodes of an agent on problems",
        (
            PROBLEMS,
            AGENT,
            MODEL,
            CORPUS,
            _number("--samples", 1, 1, 1_000_000, "episodes a problem"),
            CONCURRENCY,
            CONFIG,
            _out(),
            SEED,
        ),
        "model.*, web.*, agent.*, limit, retries. Models: configs/models/*.yaml, webs: configs/tools/*.yaml.",
        (
            "proofhound rollout --problems p.jsonl --model runs/sft/model --samples 4 --out runs/r",
            "proofhound rollout --problems p.jsonl -a mirothinker -c configs/models/openai_chat.yaml --out runs/r",
        ),
    ),
    "ask": Command(
        "one answer, with its evidence",
        (
            _argument("question", metavar="QUESTION", help="in quotes"),
            _argument(
                "-a",
                "--agent",
                metavar="AGENT",
                help="embedded, mirothinker or a YAML file (default: embedded with --model, else mirothinker)",
            ),
            MODEL,
            CORPUS,
            _argument("--json", action="store_true", help="print one JSON object"),
            CONFIG,
            SEED,
        ),
        "model.*, web.*, agent.*. Models: configs/models/*.yaml, webs: configs/tools/*.yaml.",
        (
            'proofhound ask "What is the capital of Kenya?" --model runs/demo/grpo/model',
            'proofhound ask "..." -c configs/models/openai_chat.yaml -c configs/tools/serper_jina.yaml',
        ),
    ),
    "eval": Command(
        "episodes, scores and a report on a benchmark",
        (
            _argument(
                "benchmark",
                metavar="BENCHMARK",
                help="problems.jsonl; or `score DIR` to score a run again, or `compare DIR DIR`",
            ),
            AGENT,
            MODEL,
            CORPUS,
            _number("--k", 1, 1, 1_000_000, "episodes a problem"),
            CONCURRENCY,
            CONFIG,
            _argument("--out", type=_path, metavar="DIR", help="run folder (needed for a benchmark)"),
            SEED,
        ),
        "model.*, web.*, agent.*, limit, retries, examples. Models: configs/models/*.yaml, webs: configs/tools/*.yaml.",
        (
            "proofhound eval p.jsonl --model runs/sft/model --k 4 --out runs/e",
            "proofhound eval compare runs/e runs/e2",
        ),
    ),
    "study": Command(
        "a resumable experiment: arms and seeds into one table",
        (_choice("name", "stages", text="which study"), CONFIG, _out(), SEED, QUICK),
        "configs/study/stages.yaml over configs/demo/full.yaml.",
        (
            "proofhound study stages --out runs/study",
            "proofhound study stages --quick --out runs/q",
        ),
    ),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of one command, `args.command` among them. Raises UsageError; `--help` exits with 0."""
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help"):
        print(_overview())
        raise SystemExit(0)
    if name == "--version":
        print(f"proofhound {__version__}")
        raise SystemExit(0)
    if name not in COMMANDS:
        raise UsageError(f"proofhound: no command {name!r}{_closest(name, COMMANDS)} (see proofhound --help)")
    command = COMMANDS[name]
    parser = _Parser(
        prog=f"proofhound {name}",
        description=_wrapped(command.summary),
        epilog=_epilog(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for argument in command.arguments:
        parser.add_argument(*argument.names, **argument.options)
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key.path=value", help="YAML values, set over the files"
    )
    return parser.parse_intermixed_args(list(argv[1:]), argparse.Namespace(command=name))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    # trl reports each trainer it starts to its makers unless told not to.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    _open_output()
    return exit_code(lambda: _run(parse(sys.argv[1:] if argv is None else argv)))


def exit_code(action: Callable[[], int]) -> int:
    """What `action` returns, or the code of the failure it met, told in one line on stderr. Bugs pass through."""
    try:
        return _shown(action)
    except UsageError as error:
        return _fail(f"error: {error}", 2)
    except ProofhoundError as error:
        return _fail(f"error: {error}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command goes on where it stopped", 130)
    except BrokenPipeError:
        return 1
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in TRAIN_EXTRA:
            raise
        return _fail(f"error: {_missing_extra(missing)}", 2)
    except OSError as error:
        return _system_failure(error)


def _shown(action: Callable[[], int]) -> int:
    """What is printed has arrived when this returns: at the interpreter's exit it is too late to tell."""
    try:
        return action()
    finally:
        _flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError as error:
        # Else the interpreter fails again at exit, on what is still to be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise StorageError(f"output: {error.strerror}; what was written before is kept") from error


def _system_failure(error: OSError) -> int:
    """A full disk, or a path that cannot be used. Anything else is a bug, and raised."""
    where = "output" if error.filename is None else os.fsdecode(error.filename)
    if error.errno in DISK_FULL:
        return _fail(f"error: {where}: {error.strerror}; what was written before is kept", 1)
    if error.filename is not None and error.errno in _UNUSABLE:
        return _fail(f"error: {where}: {error.strerror}", 2)
    raise error


def _open_output() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed before we started
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if name == "stdout" else "backslashreplace")


def _run(args: argparse.Namespace) -> int:
    handler = importlib.import_module(f"scripts.commands.{args.command}")
    code: int = handler.run(args)
    return code


def _missing_extra(module: str) -> MissingExtraError:
    return MissingExtraError(f"this needs {module}, which is not installed: pip install 'proofhound[train]'")


def _fail(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


def _closest(word: str, known: Sequence[str] | dict[str, Command]) -> str:
    return f"; the closest one is {get_close_matches(word, list(known), n=1, cutoff=0)[0]!r}"


def _epilog(command: Command) -> str:
    return "\n".join(
        [_wrapped(f"settings: {command.settings}"), "", "examples:", *(f"  {e}" for e in command.examples)]
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 80, break_on_hyphens=False)


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:{width}}{command.summary}" for name, command in COMMANDS.items()]
    head = "usage: proofhound COMMAND [ARGUMENTS] [key.path=value ...]\n\ncommands:\n"
    tail = "\n\nproofhound COMMAND --help tells a command's arguments; proofhound --version the version."
    return head + "\n".join(lines) + tail


if __name__ == "__main__":
    sys.exit(main())
