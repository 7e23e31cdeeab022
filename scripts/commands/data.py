"""`proofhound data midtrain|sft|pairs --episodes DIR --problems FILE --out DIR`: training sets.

* `midtrain` writes midtrain.jsonl (plans and rewritten steps; problems need reasoning trees), `sft` sft.jsonl (expert
  episodes that are right and clean), `pairs` pairs.jsonl (a right and a wrong episode of one question).
* Beside it: rejections.jsonl (each with its reason) and report.md (the funnel; for pairs the lengths of both sides).
* Rows are on file as they come; the same command again adds what is missing and nothing twice.
* Without one row the run has failed; the report says why.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from configs.errors import InputError, RunFailed
from configs.loader import load, resolve
from configs.run_folder import open_run, released_on_bad_input
from configs.schema import Config
from configs.whole import write_whole
from data_synthesis import midtrain, pairs, sft_set
from data_synthesis.ledger import Ledger, Rejection, funnel_table
from inference.records import append_record, read_keys, read_records
from inference.types import Episode
from rollout_env.problem import Problem, read_problems
from rollout_env.runner import EPISODES
from scripts.progress import progress

REJECTIONS, REPORT = "rejections.jsonl", "report.md"
FILES = {"midtrain": "midtrain.jsonl", "sft": "sft.jsonl", "pairs": "pairs.jsonl"}

Problems = Mapping[str, Problem]


class Inputs(Config):
    episodes: Path
    """Run folder of rollouts, or an episodes.jsonl."""
    problems: Path
    """problems.jsonl with gold, and for midtrain with reasoning trees."""


class MidtrainDataConfig(Inputs, midtrain.MidtrainConfig):
    seed: int = Field(default=0)
    """Wording, and which steps."""


class SftDataConfig(Inputs, sft_set.SftSetConfig):
    seed: int = 0
    """Draws nothing here; names the run."""


class PairsDataConfig(Inputs, pairs.PairsConfig):
    seed: int = 0
    """Which rights meet which wrongs."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How one set is made."""

    schema: type[Inputs]
    record: str
    reasons: Sequence[str]
    make: Callable[[Iterable[Episode], Problems, Any], Iterator[Any]]
    name: Callable[[Any], str]


def _midtrain(
    episodes: Iterable[Episode], problems: Problems, config: MidtrainDataConfig
) -> Iterator[midtrain.MidRow | Rejection]:
    episodes = iter(episodes)
    first = next(episodes, None)
    if first is None or not first.tries:
        raise InputError(f"{config.episodes}: the first episode holds no try")
    yield from midtrain.plan_rows(problems.values(), midtrain.opening_of(first), config)
    yield from midtrain.step_rows((episode for part in ((first,), episodes) for episode in part), problems, config)


KINDS = {
    "midtrain": Kind(MidtrainDataConfig, midtrain.KIND, midtrain.REASONS, _midtrain, lambda row: str(row.id)),
    "sft": Kind(SftDataConfig, sft_set.KIND, sft_set.REASONS, sft_set.sft_episodes, lambda row: str(row.key)),
    "pairs": Kind(PairsDataConfig, pairs.KIND, pairs.REASONS, pairs.make_pairs, lambda row: str(row.id)),
}


def run(args: argparse.Namespace) -> int:
    kind = KINDS[args.kind]
    own = [f"episodes={json.dumps(str(args.episodes))}", f"seed={args.seed}"]
    own += [f"problems={json.dumps(str(args.problems))}"] if args.problems is not None else []
    config = load(kind.schema, [resolve("data", args.kind), *args.config], [*own, *args.overrides])
    problems = {problem.question.id: problem for problem in read_problems(config.problems)}
    source = config.episodes / EPISODES if config.episodes.is_dir() else config.episodes
    if not source.is_file():
        raise InputError(f"{config.episodes}: no {EPISODES} there; `proofhound rollout` makes one")
    folder = open_run(args.out, f"data {args.kind}", config)
    with released_on_bad_input(folder):
        rows, ledger = _collect(kind, _latest(source), problems, config, folder.path / FILES[args.kind])
    report = f"# Training set: {args.kind}\n\n{funnel_table(ledger.funnel, kind.reasons)}"
    if args.kind == "pairs":
        report += "\n" + _sides(rows)
    write_whole(folder.path / REPORT, report)
    if not ledger.funnel.kept:
        raise RunFailed(f"no row could be made; {folder.path / REPORT} says why")
    print(f"{folder.path / FILES[args.kind]}: {ledger.funnel.kept} rows of {ledger.funnel.candidates} candidates")
    return 0


def _latest(source: Path) -> Iterator[Episode]:
    """Every episode, in the order of the file; of several with one key the last."""
    last = {str(episode.key): number for number, episode in enumerate(read_records(source, Episode))}
    if not last:
        raise InputError(f"{source}: holds no episode; `proofhound rollout` makes them")
    kept = set(last.values())
    for number, episode in enumerate(read_records(source, Episode)):
        if number in kept:
            yield episode


def _collect(
    kind: Kind, episodes: Iterable[Episode], problems: Problems, config: Inputs, path: Path
) -> tuple[list[pairs.Pair], Ledger]:
    """(the pairs, for their lengths; the ledger). Rows go to `path` as they come."""
    known = read_keys(path, kind.record)
    ledger = Ledger(path.with_name(REJECTIONS))
    made: list[pairs.Pair] = []
    with progress(path.stem) as bar:
        for row in kind.make(episodes, problems, config):
            bar.advance()
            if isinstance(row, Rejection):
                ledger.reject(row)
                continue
            name = kind.name(row)
            ledger.keep(name)
            if name not in known:
                append_record(path, kind.record, name, row)
            if isinstance(row, pairs.Pair):
                made.append(row)
    if not path.exists():
        path.touch()
    return made, ledger


def _sides(made: Sequence[pairs.Pair]) -> str:
    lines = ["| side | mean length | median length | mean turns |", "|---|---:|---:|---:|"]
    for name, side in (("chosen", [p.chosen for p in made]), ("rejected", [p.rejected for p in made])):
        size = pairs.lengths(side)
        lines.append(f"| {name} | {size.mean_length:.1f} | {size.median_length:.1f} | {size.mean_turns:.2f} |")
    return "\n".join(lines) + "\n"
