"""The step `questions`: sets of questions, each proved to have exactly one answer over the facts of its corpus.

* Inputs `corpus_NAME` are the corpora that sources name; `sealed`, where given, is a problems file that no question of
  this step may touch (data_synthesis.splits). Without it the step makes held-out questions.
* Over the real facts, held-out questions have their answer on a held-out country, and no country on the way of a
  training question is one. Generated worlds know no held-out countries.
* No question stands twice, in one set or in two: the first set has it.
* `rejections.jsonl` has every candidate that was turned down, with the reason.
* This step reads facts, no later one does.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from configs.errors import InputError
from configs.schema import Config
from data_synthesis import corpus_qa, webhop
from data_synthesis.corpus import corpus_name, read_facts
from data_synthesis.holdout import is_held_out
from data_synthesis.ledger import Ledger, Rejection
from data_synthesis.splits import separate
from inference.web.recorded_web import read_pages
from rollout_env.problem import Problem, read_problems, write_problems
from scripts.steps.work import Task

FACTBOOK = "factbook"
REJECTIONS = "rejections.jsonl"
_NOT_HELD_OUT = "answer_not_held_out"
_HELD_OUT = "held_out_country"
_DUPLICATE = "duplicate"
_TOUCHES = "touches_heldout_"


class WebHopSource(Config):
    """Questions grown from their answer over the facts of a corpus."""

    kind: Literal["webhop"] = "webhop"
    corpus: Literal["factbook", "world"]
    count: int = Field(ge=1)
    """Questions tried for; of the real facts those with answers on the wrong side of the hold-out go."""
    generator: webhop.WebHopConfig = webhop.WebHopConfig()
    """Its seed is set from the step's."""


class CorpusSource(Config):
    """Questions written from connected pages of a corpus."""

    kind: Literal["corpus"] = "corpus"
    corpus: Literal["factbook", "world"]
    count: int = Field(ge=1)
    """Questions wanted, before those on the wrong side of the hold-out go."""
    generator: corpus_qa.CorpusQAConfig = corpus_qa.CorpusQAConfig()
    """Its seed is set from the step's."""


Source = Annotated[WebHopSource | CorpusSource, Field(discriminator="kind")]


class QuestionsSettings(Config):
    sets: dict[str, tuple[Source, ...]]
    """Set -> where its questions come from. Each becomes SET.jsonl."""


@dataclass(frozen=True, slots=True)
class _Made:
    set: str
    outcome: Problem | Rejection


def run(task: Task) -> dict[str, Any]:
    sets = task.settings(QuestionsSettings).sets
    sealed = _sealed(task)
    ledger = Ledger(task.folder / REJECTIONS)
    kept: dict[str, dict[str, Problem]] = {name: {} for name in sets}
    reasons: dict[str, Counter[str]] = {name: Counter() for name in sets}
    total = sum(source.count for sources in sets.values() for source in sources)
    seen: set[str] = set()
    for made in _candidates(task, sets):
        outcome = made.outcome
        if isinstance(outcome, Problem):
            outcome = _admitted(outcome, made.set, seen, held_out=sealed is None)
        if isinstance(outcome, Rejection):
            ledger.reject(outcome)
            reasons[made.set][outcome.reason] += 1
            continue
        seen.add(outcome.question.text)
        kept[made.set][outcome.question.id] = outcome
        task.meter.update(min(len(seen), total), total, made.set)
    return {name: _write(task, name, kept[name], reasons[name], sealed, ledger) for name in sets}


def _sealed(task: Task) -> list[Problem] | None:
    return read_problems(task.input("sealed")) if "sealed" in task.spec.inputs else None


def _candidates(task: Task, sets: dict[str, tuple[Source, ...]]) -> Iterator[_Made]:
    corpora = task.inputs("corpus_")
    for name, sources in sets.items():
        for number, source in enumerate(sources):
            drawn = hashlib.sha256(f"{task.seed}/{name}/{number}".encode()).digest()
            seed = int.from_bytes(drawn[:4], "big") >> 1
            for outcome in _generated(source, corpora[source.corpus], seed, f"{name}/{number}"):
                yield _Made(name, outcome)


def _generated(source: Source, corpus: Path, seed: int, prefix: str) -> Iterator[Problem | Rejection]:
    """Rejections carry keys that name the set and source."""
    name = corpus_name(corpus)
    if isinstance(source, CorpusSource):
        pages = corpus_qa.Corpus(list(read_pages(corpus)))
        generator = source.generator.model_copy(update={"seed": seed})
        for outcome in corpus_qa.generate(pages, generator, source.count, name):
            if isinstance(outcome, Rejection):
                outcome = Rejection(f"{prefix}/{outcome.key}", outcome.reason, outcome.candidate, outcome.evidence)
            yield outcome
        return
    webhop_generator = source.generator.model_copy(update={"seed": seed})
    numbers = counting()
    for made in webhop.generate(read_facts(corpus), webhop_generator, source.count, name):
        if isinstance(made, Problem):
            yield made
        else:
            candidate = {"question": made.question, "answer": made.answer, "shape": made.shape}
            yield Rejection(f"{prefix}/{next(numbers)}", made.reason, candidate)


def _admitted(problem: Problem, name: str, seen: set[str], *, held_out: bool) -> Problem | Rejection:
    """The problem, or why it is not for this side of the hold-out."""
    reason = _wrong_side(problem, held_out=held_out) if problem.provenance.world == FACTBOOK else None
    if problem.question.text in seen:
        reason = _DUPLICATE
    return problem if reason is None else _turned_down(problem, name, reason)


def _wrong_side(problem: Problem, *, held_out: bool) -> str | None:
    path: list[str] = problem.provenance.tree["path"]
    countries = path if problem.question.meta["shape"].endswith("c") else path[1:]
    if held_out:
        return None if is_held_out(countries[0]) else _NOT_HELD_OUT
    return _HELD_OUT if any(map(is_held_out, countries)) else None


def _turned_down(problem: Problem, name: str, reason: str) -> Rejection:
    candidate = {"question": problem.question.text, "answer": problem.gold.canonical}
    return Rejection(f"{name}/{problem.question.id}/{reason}", reason, candidate)


def _write(
    task: Task,
    name: str,
    kept: dict[str, Problem],
    reasons: Counter[str],
    sealed: list[Problem] | None,
    ledger: Ledger,
) -> dict[str, Any]:
    """Write the set, without what touches the sealed questions; its funnel."""
    if sealed is None:
        chosen = list(separate([], kept.values()).heldout)
    else:
        split = separate(kept.values(), sealed)
        chosen = list(split.train)
        for problem, what in split.dropped:
            ledger.reject(_turned_down(problem, name, _TOUCHES + what))
            reasons[_TOUCHES + what] += 1
    if not chosen:
        raise InputError(f"set {name}: no question is left; turned down: {dict(reasons)}")
    write_problems(task.folder / f"{name}.jsonl", chosen)
    hops = Counter(str(problem.provenance.hops) for problem in chosen)
    return {"kept": len(chosen), "rejected": dict(reasons), "hops": dict(sorted(hops.items()))}
