"""The step `report`: everything the demo found, as report.html, report.md and, for programs, tables.json.

* Inputs: `arm_NAME` (folders with scores.jsonl, in the order of the stages), `verified` (that step's folder),
  `stage_NAME` (train steps), `funnel_NAME` (steps that kept and turned down), `problems` (the held-out file), and
  `other_NAME` (the rest, for their time and memory).
* tables.json holds what a run's seed decides (accuracy, tests, losses, rewards, counts) and no time or memory: an
  interrupted run and one that was not have the same.
* `about.json` of the pipeline's folder, where there is one, tells command, versions and memory of the run as a whole.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from configs.schema import Config
from eval.compare import Comparison, compare
from eval.report import write_report
from eval.score import QuestionScore, Summary, read_scores, summarise
from eval.sections import Cell, Funnel, Lines, Report, Section, Series, Table, Text, TrajectoryView
from eval.views import accuracy_bars, cost_table, hops_bars, outcome_table, paired_table, trajectory_view
from eval.wording import interval, number, percent
from inference.records import read_records
from inference.types import Episode
from inference.verify import score as evidence_score
from rollout_env.problem import Problem, read_problems
from scripts.steps.folder import DONE, Done, write_json
from scripts.steps.verified import PICKED
from scripts.steps.work import Task

TABLES = "tables.json"
ABOUT = "about.json"
_EXAMPLES = 3
_CURVES = {"mid": ("loss",), "sft": ("loss",), "dpo": ("dpo", "accuracy"), "grpo": ("reward", "accuracy")}
"""Metrics drawn of each stage."""


class ReportSettings(Config):
    title: str
    samples: int
    """n, candidates a question in the verification pass."""


def run(task: Task) -> dict[str, Any]:
    settings = task.settings(ReportSettings)
    arms = {name: read_scores(path) for name, path in task.inputs("arm_").items()}
    readings = {
        f"single × {settings.samples}": read_scores(task.input("verified") / "single"),
        f"majority of {settings.samples}": read_scores(task.input("verified") / "majority"),
        f"verified of {settings.samples}": read_scores(task.input("verified") / "verified"),
    }
    curves = {name: read_curve(path) for name, path in task.inputs("stage_").items()}
    trained = {name: _done(path).results for name, path in task.inputs("stage_").items()}
    funnels = {name: _done(path).results for name, path in task.inputs("funnel_").items()}
    summaries = {name: summarise(scores) for name, scores in (arms | readings).items()}
    tests = _tests(arms, readings)
    write_json(task.folder / TABLES, _tables(summaries, tests, curves, funnels))
    report = Report(
        settings.title,
        (
            accuracy_bars("Accuracy on held-out questions", summaries, _RATES),
            outcome_table("Outcomes", summaries),
            paired_table("What each stage changed", tests),
            hops_bars("Accuracy by hops", {name: summaries[name] for name in (*arms, list(readings)[-1])}),
            *_curve_sections(curves, trained),
            *_funnel_sections(funnels),
            cost_table("What an episode takes", summaries),
            steps_table(task),
            *_examples(task, readings[f"verified of {settings.samples}"]),
            *about_table(Path(ABOUT)),
        ),
        _SUBTITLE,
        _figures(summaries),
    )
    write_report(report, task.folder)
    return {name: summary.accuracy.mean for name, summary in summaries.items()}


_SUBTITLE = (
    "Questions about pages of real-world facts; their answers, and the ways to them, occur in no training question. "
    "Every model answers the same ones."
)
_RATES = "With 95% intervals over questions."


def _tests(
    arms: Mapping[str, Sequence[QuestionScore]], readings: Mapping[str, Sequence[QuestionScore]]
) -> list[tuple[str, str, Comparison]]:
    """Successive stages; then the verification pass against single answers and against the majority."""
    names = list(arms)
    pairs = [(a, arms[a], b, arms[b]) for a, b in pairwise(names)]
    single, majority, verified = readings
    pairs += [(other, readings[other], verified, readings[verified]) for other in (single, majority)]
    return [(a, b, compare(before, after)) for a, before, b, after in pairs]


# -- what was trained and made ----------------------------------------------------------------------------------------


def read_curve(step: Path) -> list[dict[str, Any]]:
    """The metrics of a train step, by optimizer step; none where it was not trained."""
    path = step / "run" / "metrics.jsonl"
    return list(read_records(path, dict[str, Any])) if path.exists() else []


def _curve_sections(
    curves: Mapping[str, Sequence[Mapping[str, Any]]], results: Mapping[str, Mapping[str, Any]]
) -> list[Section]:
    sections: list[Section] = []
    for name, rows in curves.items():
        series = [
            Series(metric, tuple((float(row["step"]), float(row[metric])) for row in rows if metric in row))
            for metric in _CURVES[name]
        ]
        if rows:
            refused = results[name].get("refused", 0)
            note = f"Rows that were too long or held nothing to train: {refused}." if refused else ""
            sections.append(Lines(f"Training: {name}", tuple(series), "step", _CURVES[name][0], note))
        elif skipped := results[name].get("skipped"):
            sections.append(Text(f"Training: {name}", (f"Not trained: {skipped}.",)))
    return sections


def _funnel_sections(funnels: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Held-out questions, training questions, and each training set: how many were left after each step, and why."""
    sections: list[Section] = [
        _questions_funnel("Held-out questions", funnels["heldout_questions"], funnels["heldout"]),
        _questions_funnel("Training questions", funnels["train_questions"], funnels["train"]),
    ]
    for name, unit in (("mid", "turns to write"), ("sft", "episodes"), ("pairs", "episodes of the sft model")):
        found = funnels[f"data_{name}"]
        rejected = {_words(reason): count for reason, count in found["rejected"].items()}
        if name == "pairs":
            used = 2 * found["kept"]
            kept = ((unit, used + sum(rejected.values())), ("in pairs", used))
        else:
            kept = (("candidates", found["kept"] + sum(rejected.values())), (unit, found["kept"]))
        sections.append(Funnel(f"Training set of {'dpo' if name == 'pairs' else name}", kept, tuple(rejected.items())))
    return sections


def _questions_funnel(title: str, drawn: Mapping[str, Any], solved: Mapping[str, Any]) -> Funnel:
    """`drawn` and `solved` are the results of the steps `questions` and `teacher`, by set."""
    reasons: Counter[str] = Counter()
    for found in (*drawn.values(), *solved.values()):
        reasons.update(found["rejected"])
    surplus = reasons.pop("more_than_wanted", 0)
    proved = sum(found["kept"] for found in drawn.values())
    kept = sum(found["kept"] for found in solved.values())
    candidates = proved + sum(sum(found["rejected"].values()) for found in drawn.values())
    stages = (("grown", candidates), ("proved and apart", proved), ("solved by the teacher", kept + surplus))
    note = ", ".join(f"{name} {found['kept']}" for name, found in solved.items()) if len(solved) > 1 else ""
    return Funnel(
        title,
        (*stages, ("used", kept)),
        tuple((_words(reason), count) for reason, count in reasons.most_common()),
        f"By set: {note}." if note else "",
    )


def _words(reason: str) -> str:
    return reason.replace("_", " ").replace("heldout", "held-out")


def _done(folder: Path) -> Done:
    return Done(**json.loads((folder / DONE).read_text(encoding="utf-8")))


def steps_table(task: Task) -> Table:
    """Time, tokens and memory of each step this report is made from."""
    rows: list[tuple[Cell, ...]] = []
    folders = {_step_folder(Path(given.path)) for given in task.spec.inputs.values()}
    finished = sorted(((folder / DONE).stat().st_mtime, folder) for folder in folders)
    for _, folder in finished:
        done = _done(folder)
        tokens = done.results.get("tokens", done.results.get("sampled_tokens"))
        rate = tokens / done.seconds if tokens and done.seconds else None
        rows.append((folder.as_posix(), _minutes(done.seconds), done.cpu_seconds, tokens, rate, done.peak_mib))
    columns = ("step", "time", "CPU seconds", "tokens", "tokens a second", "peak MiB")
    note = "In the order they ended. Tokens: trained on (padding left out) in training, sampled in rollouts."
    return Table("Time, tokens and memory", columns, tuple(rows), note)


def _step_folder(path: Path) -> Path:
    """The step that an input lies in."""
    return next(folder for folder in (path, *path.parents) if (folder / DONE).exists())


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


# -- examples ---------------------------------------------------------------------------------------------------------


def _examples(task: Task, scores: Sequence[QuestionScore]) -> list[TrajectoryView]:
    """One trajectory of the fewest, the middle and the most hops: a right one whose evidence holds, if there is one."""
    problems = {problem.question.id: problem for problem in read_problems(task.input("problems"))}
    episodes = {e.key.question_id: e for e in read_records(task.input("verified") / PICKED, Episode)}
    classes: dict[int, list[QuestionScore]] = defaultdict(list)
    for score in scores:
        classes[score.hops or 0].append(score)
    hops = sorted(classes)
    chosen = dict.fromkeys(hops[round(i * (len(hops) - 1) / (_EXAMPLES - 1))] for i in range(_EXAMPLES))
    views = []
    for count in chosen:
        best = max(classes[count], key=lambda score: _quality(score, problems, episodes))
        name, outcome = best.question_id, best.samples[0].outcome
        title = f"An answer over {count} hop{'' if count == 1 else 's'}"
        views.append(trajectory_view(title, problems[name], episodes[name], outcome))
    return views


def _quality(
    score: QuestionScore, problems: Mapping[str, Problem], episodes: Mapping[str, Episode]
) -> tuple[bool, float]:
    problem, episode = problems[score.question_id], episodes[score.question_id]
    return score.samples[0].correct, evidence_score(problem.question, episode).total


# -- the whole --------------------------------------------------------------------------------------------------------


def _figures(summaries: Mapping[str, Summary]) -> tuple[tuple[str, str], ...]:
    shown = []
    for name, summary in summaries.items():
        a = summary.accuracy
        if " × " not in name:
            shown.append((name, f"{percent(a.mean)} ({interval(a.interval.low, a.interval.high)})"))
    questions = next(iter(summaries.values())).accuracy.questions
    return (("held-out questions", f"{questions:,}"), *shown)


def about_table(path: Path) -> list[Section]:
    """How to make it again."""
    if not path.exists():
        return []
    rows = tuple((name, value) for name, value in json.loads(path.read_text(encoding="utf-8")).items())
    return [Table("How it was made", ("", ""), tuple((n, v if isinstance(v, str) else number(v)) for n, v in rows))]


def _tables(
    summaries: Mapping[str, Summary],
    tests: Sequence[tuple[str, str, Comparison]],
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    funnels: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "accuracy": {name: _estimate(summary) for name, summary in summaries.items()},
        "tests": [
            {"from": a, "to": b, "difference": c.test.difference, "p": c.test.p, "test": c.test.test}
            for a, b, c in tests
        ],
        "curves": {
            name: [{key: row[key] for key in row if key not in _NOT_OURS} for row in rows]
            for name, rows in curves.items()
        },
        "funnels": funnels,
    }


_NOT_OURS = frozenset({"seconds", "rollout_seconds", "mismatch"})
"""Metrics that no seed decides: times, and the rounding between engine and trainer."""


def _estimate(summary: Summary) -> dict[str, Any]:
    a = summary.accuracy
    return {
        "mean": a.mean,
        "interval": [a.interval.low, a.interval.high],
        "questions": a.questions,
        "samples": a.samples,
        "by_hops": {hops: estimate.mean for hops, estimate in summary.by_hops.items()},
        "outcomes": {outcome.value: count for outcome, count in summary.outcomes.items()},
        "turns": summary.turns,
        "sampled_tokens": summary.completion_tokens,
    }
