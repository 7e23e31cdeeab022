"""The step `comparison`: the study's one table, over seeds.

* Inputs: `arm_SEED_NAME` (folders with scores.jsonl; the questions are the same for all seeds), `stage_SEED_NAME`
  (train steps), `other_...` (the rest, for their time and memory).
* An arm's accuracy is the mean over questions of the mean over seeds and samples; its interval is clustered by
  question: it says how far other questions would change the figure. The seeds' own figures stand beside it.
* Tests are sign-flip permutations over questions, the seeds of a question averaged.
* study.md, study.html, and study.json for programs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from configs.errors import InputError, StorageError, boundary
from configs.schema import Config
from eval.markdown import markdown
from eval.report import html
from eval.score import QuestionScore, read_scores, summarise
from eval.sections import Bar, Bars, Cell, Lines, Report, Series, Table
from eval.stats import Estimate, PairedTest, avg_at_k, paired
from eval.wording import interval, percent
from scripts.steps.folder import write_json
from scripts.steps.report import ABOUT, about_table, read_curve, steps_table
from scripts.steps.work import Task

MARKDOWN, HTML, JSON = "study.md", "study.html", "study.json"
_ORDER = ("base", "mid", "sft_nomid", "sft", "dpo", "grpo", "single", "majority", "verified")
_PAIRS = (
    ("base", "mid"),
    ("mid", "sft"),
    ("sft_nomid", "sft"),
    ("sft", "dpo"),
    ("dpo", "grpo"),
    ("sft", "grpo"),
    ("single", "verified"),
    ("majority", "verified"),
)
_ALL_CANDIDATES = frozenset({"majority", "verified"})
"""Readings whose one answer takes all candidates of a question."""


class ComparisonSettings(Config):
    title: str
    samples: int
    """n, candidates a question in the verification pass."""


Scores = Sequence[Sequence[QuestionScore]]
"""Of one arm, by seed."""


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(ComparisonSettings)
    arms = _arms(task)
    estimates = {name: avg_at_k(_points(scores)) for name, scores in arms.items()}
    tests = [(a, b, _test(arms[a], arms[b])) for a, b in _PAIRS]
    report = Report(
        settings.title,
        (
            _arms_table(arms, estimates, settings.samples),
            _tests_table(tests),
            Bars("Accuracy", (("", tuple(_bar(name, estimate) for name, estimate in estimates.items())),)),
            _hops_table(arms),
            *_curves(task),
            steps_table(task),
            *about_table(Path(ABOUT)),
        ),
        _subtitle(arms),
    )
    write_json(task.folder / JSON, _plain(arms, estimates, tests))
    for name, text in ((MARKDOWN, markdown(report)), (HTML, html(report))):
        with boundary(StorageError, f"{task.folder / name}: cannot write"):
            (task.folder / name).write_text(text, encoding="utf-8", errors="replace")
    return {name: estimate.mean for name, estimate in estimates.items()}


def _arms(task: Task) -> dict[str, list[list[QuestionScore]]]:
    """By arm, then by seed; every list holds the same questions in the same order. Raises InputError."""
    found: dict[str, list[list[QuestionScore]]] = defaultdict(list)
    for role, path in task.inputs("arm_").items():
        found[role.partition("_")[2]].append(read_scores(path))
    questions = {tuple(score.question_id for score in scores) for runs in found.values() for scores in runs}
    if len(questions) != 1:
        raise InputError("the arms did not answer the same questions")
    return {name: found[name] for name in _ORDER}


def _points(scores: Scores) -> list[list[float]]:
    """One list a question: the points of all seeds and samples."""
    return [[point for score in per_seed for point in score.points] for per_seed in zip(*scores, strict=True)]


def _test(before: Scores, after: Scores) -> PairedTest:
    means = ([mean(points) for points in _points(scores)] for scores in (before, after))
    return paired(*means, single=False)


def _arms_table(arms: Mapping[str, Scores], estimates: Mapping[str, Estimate], samples: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, scores in arms.items():
        estimate = estimates[name]
        seeds = " ".join(percent(avg_at_k(_points([one])).mean) for one in scores)
        cost = [summarise(one) for one in arms["single" if name in _ALL_CANDIDATES else name]]
        times = samples if name in _ALL_CANDIDATES else 1
        ends = interval(estimate.interval.low, estimate.interval.high)
        takes = [times * mean(getattr(one, field) for one in cost) for field in _COSTS]
        rows.append((_label(name, samples), percent(estimate.mean), ends, seeds, *takes))
    columns = ("arm", "accuracy", "95% interval", "by seed", "turns", "sampled tokens", "seconds")
    note = (
        "Turns, tokens and seconds are means for one answer; a majority or verified one takes all candidates. Seconds "
        "are an episode's own, while others ran beside it on the same core."
    )
    return Table("Arms", columns, tuple(rows), note)


_COSTS = ("turns", "completion_tokens", "seconds")


def _label(arm: str, samples: int = 0) -> str:
    """An arm in words; with `samples` its number of candidates too."""
    name = {"sft_nomid": "sft without mid"}.get(arm, arm)
    form = {"single": "single × {n}", "majority": "majority of {n}", "verified": "verified of {n}"}.get(arm)
    return form.format(n=samples) if form and samples else name


def _tests_table(tests: Sequence[tuple[str, str, PairedTest]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for before, after, test in tests:
        ends = f"{100 * test.interval.low:+.1f} … {100 * test.interval.high:+.1f}".replace("-", "−")
        difference = f"{100 * test.difference:+.1f} points".replace("-", "−")
        p = "< 0.001" if test.p < 0.001 else f"{test.p:.3f}"
        rows.append((f"{_label(before)} → {_label(after)}", difference, ends, p))
    note = "Sign-flip permutation over questions, seeds averaged; two-sided. Intervals: bootstrap over questions."
    return Table("Paired tests", ("arms", "difference", "95% interval", "p"), tuple(rows), note)


def _hops_table(arms: Mapping[str, Scores]) -> Table:
    """Accuracy by number of hops."""
    questions = next(iter(arms.values()))[0]
    hops = sorted({score.hops or 0 for score in questions})
    rows: list[tuple[Cell, ...]] = []
    for name, scores in arms.items():
        parts = [avg_at_k(_points([[q for q in one if (q.hops or 0) == h] for one in scores])) for h in hops]
        rows.append((_label(name), *(percent(part.mean) for part in parts)))
    counts = [sum((q.hops or 0) == h for q in questions) for h in hops]
    columns = ("arm", *(f"{h} ({count})" for h, count in zip(hops, counts, strict=True)))
    return Table("Accuracy by hops (questions)", columns, tuple(rows))


def _curves(task: Task) -> list[Lines]:
    """The reward of grpo, and the losses of the other stages, one line a seed."""
    series: dict[str, list[Series]] = defaultdict(list)
    for role, path in task.inputs("stage_").items():
        seed, _, name = role.partition("_")
        points = tuple((float(row["step"]), float(row[_metric(name)])) for row in read_curve(path))
        series[name].append(Series(f"seed {seed}", points))
    return [Lines(f"Training: {_label(name)}", tuple(lines), "step", _metric(name)) for name, lines in series.items()]


def _metric(stage: str) -> str:
    return "reward" if stage == "grpo" else "loss"


def _bar(name: str, estimate: Estimate) -> Bar:
    return Bar(_label(name), estimate.mean, estimate.interval.low, estimate.interval.high)


def _subtitle(arms: Mapping[str, Scores]) -> str:
    runs = arms["base"]
    return (
        f"{len(runs[0]):,} held-out questions about real-world facts, {len(runs)} seeds. Each seed has its own "
        "generated world, training questions, training runs and samples; all answer the same questions."
    )


def _plain(
    arms: Mapping[str, Scores], estimates: Mapping[str, Estimate], tests: Sequence[tuple[str, str, PairedTest]]
) -> dict[str, Any]:
    return {
        "arms": {
            name: {
                "mean": estimate.mean,
                "interval": [estimate.interval.low, estimate.interval.high],
                "seeds": [avg_at_k(_points([one])).mean for one in arms[name]],
                "questions": estimate.questions,
                "samples": estimate.samples,
            }
            for name, estimate in estimates.items()
        },
        "tests": [
            {
                "from": a,
                "to": b,
                "difference": test.difference,
                "interval": [test.interval.low, test.interval.high],
                "p": test.p,
            }
            for a, b, test in tests
        ],
    }
