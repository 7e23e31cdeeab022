"""`proofhound synth webhop|corpus --corpus DIR --out DIR`: questions that can be proved.

* `webhop` reads the corpus's facts.jsonl, `corpus` its pages alone.
* The run folder gets problems.jsonl, rejections.jsonl (each with its reason) and report.md (the funnel). Problems and
  rejections are on file as they come; the same command again goes on from there and ends with the same files.
* With `heldout=N` at least N questions are marked held out, and training questions that share an answer or a clue path
  with them are rejected (data_synthesis.splits).
* Without one question the run has failed; the report says why.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from configs.errors import RunFailed
from configs.loader import load, resolve
from configs.run_folder import open_run
from configs.schema import Config
from configs.whole import write_whole
from data_synthesis import corpus_qa, webhop
from data_synthesis.corpus import corpus_name, read_facts
from data_synthesis.ledger import Ledger, Rejection, count_table, funnel_table
from data_synthesis.splits import split
from inference.records import append_record, read_keys
from inference.web.recorded_web import read_pages
from rollout_env.problem import KIND, Problem, write_problems
from scripts.progress import progress

ACCEPTED = "accepted.jsonl"
"""Problems as they come, before held-out ones are drawn."""
PROBLEMS, REJECTIONS, REPORT = "problems.jsonl", "rejections.jsonl", "report.md"
WEBHOP_REASONS = ("no_tree", "duplicate", "answer_leaks", "not_unique", "open_path", "too_wide", "idle_clue")
TOUCHES = "touches_heldout_"
EXAMPLES = 5


class SynthConfig(Config):
    count: int = Field(default=200, ge=1)
    """Questions wanted, before held-out ones are drawn."""
    heldout: int = Field(default=0, ge=0)
    """Questions to hold out, at least."""


class WebHopSynthConfig(SynthConfig):
    generator: webhop.WebHopConfig = webhop.WebHopConfig()


class CorpusSynthConfig(SynthConfig):
    generator: corpus_qa.CorpusQAConfig = corpus_qa.CorpusQAConfig()


class WebHopRun(WebHopSynthConfig):
    corpus: Path


class CorpusRun(CorpusSynthConfig):
    corpus: Path


Outcome = Problem | Rejection


def run(args: argparse.Namespace) -> int:
    schema: type[WebHopRun] | type[CorpusRun] = WebHopRun if args.method == "webhop" else CorpusRun
    own = [f"corpus={json.dumps(str(args.corpus))}", f"generator.seed={args.seed}"]
    config = load(schema, [resolve("synth", args.method), *args.config], [*own, *args.overrides])
    name = corpus_name(config.corpus)
    if isinstance(config, WebHopRun):
        reasons: Sequence[str] = WEBHOP_REASONS
        outcomes = _webhop(config, name)
    else:
        reasons = corpus_qa.REASONS
        outcomes = _corpus(config, name)
    folder = open_run(args.out, f"synth {args.method}", config)
    problems, ledger = _collect(outcomes, folder.path, config.count)
    problems = _held_out(problems, config.heldout, config.generator.seed, ledger)
    write_problems(folder.path / PROBLEMS, problems)
    order = (*reasons, *(TOUCHES + what for what in ("answer", "leaf", "path")))
    write_whole(folder.path / REPORT, _report(args.method, name, problems, ledger, order))
    if not problems:
        raise RunFailed(f"no question could be made; {folder.path / REPORT} says why")
    print(f"{folder.path / PROBLEMS}: {len(problems)} of {ledger.funnel.candidates} candidates kept")
    return 0


def _webhop(config: WebHopRun, name: str) -> Iterator[Outcome]:
    facts = read_facts(config.corpus)
    return _keyed(webhop.generate(facts, config.generator, config.count, name))


def _keyed(outcomes: Iterator[Problem | webhop.Rejection]) -> Iterator[Outcome]:
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, Problem):
            yield outcome
        else:
            candidate = {"question": outcome.question, "answer": outcome.answer, "shape": outcome.shape}
            yield Rejection(str(number), outcome.reason, candidate)


def _corpus(config: CorpusRun, name: str) -> Iterator[Outcome]:
    pages = list(read_pages(config.corpus))
    return corpus_qa.generate(corpus_qa.Corpus(pages), config.generator, config.count, name)


def _collect(outcomes: Iterator[Outcome], out: Path, count: int) -> tuple[list[Problem], Ledger]:
    known = read_keys(out / ACCEPTED, KIND)
    ledger = Ledger(out / REJECTIONS)
    problems: list[Problem] = []
    with progress("questions", count) as bar:
        for outcome in outcomes:
            if isinstance(outcome, Rejection):
                ledger.reject(outcome)
                continue
            problems.append(outcome)
            ledger.keep(outcome.question.id)
            if outcome.question.id not in known:
                append_record(out / ACCEPTED, KIND, outcome.question.id, outcome)
            bar.advance()
    return problems, ledger


def _held_out(problems: list[Problem], heldout: int, seed: int, ledger: Ledger) -> list[Problem]:
    if not heldout:
        return problems
    drawn = split(problems, heldout, seed)
    for problem, what in drawn.dropped:
        described = {"question": problem.question.text, "answer": problem.gold.canonical}
        ledger.drop(Rejection(problem.question.id, TOUCHES + what, described))
    return [*drawn.train, *drawn.heldout]


def _report(method: str, name: str, problems: Sequence[Problem], ledger: Ledger, order: Sequence[str]) -> str:
    counted = {
        "part": Counter(p.provenance.split or "undivided" for p in problems),
        "shape": Counter(p.question.meta.get("shape", "?") for p in problems),
        "hops": Counter(str(p.provenance.hops) for p in problems),
    }
    tables = [count_table(title, dict(sorted(counts.items()))) for title, counts in counted.items()]
    examples = "\n".join(f"- {p.question.text} **{p.gold.canonical}**" for p in problems[:EXAMPLES])
    parts = [f"# Questions: {method} over {name}\n", funnel_table(ledger.funnel, order), *tables]
    return "\n".join([*parts, f"## Examples\n\n{examples}\n"])
