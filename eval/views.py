"""Sections made from scores, comparisons and episodes: the wording of results, in one place.

* Every rate stands with its interval and the number it is a rate of; what is in no clean state is named beside it.
* Evidence marks are found by `inference.evidence`, from what the episode observed alone.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eval.compare import Comparison, Flip
from eval.score import QuestionScore, Summary, summarise
from eval.sections import Bar, Bars, Cell, EvidenceView, Report, Section, StepView, Table, Text, TrajectoryView
from eval.stats import Estimate
from eval.wording import interval, number, percent
from inference.evidence import check, passages
from inference.types import Episode, Node, Trajectory
from rollout_env.outcome import Outcome
from rollout_env.problem import Problem

_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)
_EVIDENCE = re.compile(r'^- .*\| ".*" \| \S+$\n?', re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n")
_TAGS = re.compile(r"</?think>")
_MOST_TEXT = 4000
"""Characters of one thought or observation that a report shows."""


def accuracy_bars(title: str, runs: Mapping[str, Summary], note: str = "") -> Bars:
    """One bar a run: the headline accuracy."""
    return Bars(title, (("", tuple(_bar(name, summary.accuracy) for name, summary in runs.items())),), note=note)


def hops_bars(title: str, runs: Mapping[str, Summary], note: str = "") -> Bars:
    """A group for each number of hops, a bar in it for each run; for one run a bar for each number of hops."""
    hops = sorted({h for summary in runs.values() for h in summary.by_hops}, key=lambda h: (len(h), h))
    groups = []
    for label in hops:
        found = [(name, summary.by_hops[label]) for name, summary in runs.items() if label in summary.by_hops]
        heading = f"{label} hop{'' if label == '1' else 's'} ({found[0][1].questions} questions)"
        groups.append((heading, tuple(_bar(name, estimate) for name, estimate in found)))
    if len(runs) == 1:
        bars = tuple(replace(bar, label=heading) for heading, (bar,) in groups)
        return Bars(title, (("", bars),), note=note)
    return Bars(title, tuple(groups), note=note)


def outcome_table(title: str, runs: Mapping[str, Summary]) -> Table:
    """Headline and what became of every selected sample."""
    columns = ("run", "accuracy ± SE", "95% interval", "among clean", "samples", *_OUTCOMES.values())
    columns += ("not run", "tool outage")
    rows: list[tuple[Cell, ...]] = []
    for name, summary in runs.items():
        accuracy = summary.accuracy
        counts = [summary.outcomes[outcome] for outcome in _OUTCOMES]
        mean = f"{100 * accuracy.mean:.1f} ± {percent(accuracy.se)}"
        ends = interval(accuracy.interval.low, accuracy.interval.high)
        size = f"{accuracy.questions} × {summary.k}"
        rows.append((name, mean, ends, percent(summary.clean.mean), size, *counts, summary.missing, summary.outages))
    return Table(title, columns, tuple(rows), note=_EVERY_SAMPLE)


def cost_table(title: str, runs: Mapping[str, Summary]) -> Table:
    """What an episode takes, on average."""
    rows = tuple(
        (name, s.turns, s.completion_tokens, s.prompt_tokens, s.seconds, percent(s.malformed))
        for name, s in runs.items()
    )
    columns = ("run", "turns", "sampled tokens", "prompt tokens", "seconds", "malformed turns")
    estimated = [f"{s.estimated} of {name}" for name, s in runs.items() if s.estimated]
    note = "Means an episode, over those that did not error."
    if estimated:
        note += f" Tokens that an endpoint did not count are estimated, in episodes: {', '.join(estimated)}."
    return Table(title, columns, rows, note=note)


def paired_table(title: str, comparisons: Sequence[tuple[str, str, Comparison]]) -> Table:
    """One row for each (run a, run b, what changed from a to b)."""
    rows = []
    for before, after, found in comparisons:
        test = found.test
        low_high = f"{_points(test.interval.low)} … {_points(test.interval.high)}"
        counts = (len(found.gained), len(found.lost), test.questions, found.left_out)
        rows.append((f"{before} → {after}", f"{_points(test.difference)} points", low_high, _p(test.p), *counts))
    columns = ("runs", "difference", "95% interval", "p", "gained", "lost", "pairs", "left out")
    tests = " and ".join(sorted({c.test.test for _, _, c in comparisons}))
    note = f"p: {tests}, two-sided. Intervals: bootstrap over questions. Left out: not run and scored in both."
    return Table(title, columns, tuple(rows), note=note)


def flips_table(title: str, flips: Sequence[Flip], most: int = 20) -> Table:
    """The questions whose score changed, the first `most` of them."""
    rows = tuple((f.question_id, f.question, percent(f.before), percent(f.after)) for f in flips[:most])
    note = f"The first {most} of {len(flips)}." if len(flips) > most else ""
    return Table(title, ("id", "question", "before", "after"), rows, note=note)


def trajectory_view(title: str, problem: Problem, episode: Episode, outcome: Outcome) -> TrajectoryView:
    """The try that ended the episode, with a mark at each link of its evidence.

    A forced answer may rest on what any try observed.
    """
    last = episode.tries[-1] if episode.tries else None
    answer = episode.answer
    observed = [passage for attempt in episode.tries for passage in passages(attempt.nodes)]
    checks = check(answer.evidence, observed) if answer else ()
    earlier = len(episode.tries) - 1
    return TrajectoryView(
        title=title,
        question=problem.question.text,
        steps=_steps(last) if last else (),
        answer=answer.text if answer else None,
        gold=problem.gold.canonical,
        outcome=outcome.value,
        evidence=tuple(EvidenceView(c.link.claim, c.link.quote, c.link.source, c.supported) for c in checks),
        note=f"Earlier tries that are not shown: {earlier}." if earlier > 0 else "",
    )


def evaluation_report(
    title: str, name: str, scores: Sequence[QuestionScore], examples: Sequence[TrajectoryView] = ()
) -> Report:
    """The report of one evaluation, of the run `name`."""
    summary = summarise(scores)
    run = {name: summary}
    sections: list[Section] = [outcome_table("Outcomes", run)]
    if len(summary.by_hops) > 1:
        sections.append(hops_bars("Accuracy by hops", run))
    if len(summary.by_split) > 1:
        bars = tuple(_bar(name, estimate) for name, estimate in summary.by_split.items())
        sections.append(Bars("Accuracy by split", (("", bars),)))
    if summary.k > 1:
        rows = tuple((f"pass@{p.k}", percent(p.mean), p.questions) for p in summary.pass_at)
        sections.append(
            Table("pass@k", ("", "estimate", "questions"), rows, note="Over questions with k clean samples.")
        )
    sections += [cost_table("Cost", run), *examples, _wrong(scores)]
    return Report(title, tuple(sections), f"Judge: {summary.judge}.", _figures(summary))


def headline(summary: Summary) -> str:
    """Accuracy with its error and counts, in one line."""
    a = summary.accuracy
    rest = ", ".join(
        f"{count} {_OUTCOMES[outcome]}"
        for outcome, count in summary.outcomes.items()
        if count and outcome not in (Outcome.CORRECT, Outcome.INCORRECT)
    )
    missing = f", {summary.missing} not run" if summary.missing else ""
    size = f"{a.questions} questions × {summary.k}"
    error = "" if math.isnan(a.se) else f" ± {100 * a.se:.1f}"
    text = f"{percent(a.mean)}{error} (95% {interval(a.interval.low, a.interval.high)}; {size}; judge {summary.judge}"
    outages = f"; {summary.outages} met a tool outage" if summary.outages else ""
    return text + (f"; {rest}" if rest else "") + missing + outages + ")"


def comparison_line(found: Comparison) -> str:
    """What changed from run a to run b, in one line."""
    test = found.test
    ends = f"{_points(test.interval.low)} … {_points(test.interval.high)}"
    counts = f"{len(found.gained)} gained, {len(found.lost)} lost of {test.questions} pairs, {found.left_out} left out"
    return f"difference {_points(test.difference)} points (95% {ends}; p {_p(test.p)}, {test.test}); {counts}"


_EVERY_SAMPLE = (
    "Accuracy counts every selected sample, whatever became of it; “among clean” leaves out those that errored, "
    "were not scored or not run. Tool outage: samples that met an unavailable tool, those among errored that are not "
    "right. Intervals and standard errors are over questions."
)
_OUTCOMES = {
    Outcome.CORRECT: "correct",
    Outcome.INCORRECT: "incorrect",
    Outcome.NOT_ATTEMPTED: "not attempted",
    Outcome.LIMIT: "limit",
    Outcome.UNSCORED: "unscored",
    Outcome.ERRORED: "errored",
}


def _bar(name: str, estimate: Estimate) -> Bar:
    detail = f"{estimate.questions} questions, {estimate.samples} samples"
    return Bar(name, estimate.mean, estimate.interval.low, estimate.interval.high, detail)


def _steps(attempt: Trajectory) -> tuple[StepView, ...]:
    views = []
    for step in attempt.steps:
        node = attempt.nodes[step.completion]
        calls = tuple(
            f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})" for call in node.calls
        )
        observed = tuple(_cut(attempt.nodes[i].text) for i in step.results)
        views.append(StepView(_thought(node), calls, observed, step.malformed))
    return tuple(views)


def _thought(node: Node) -> str:
    text = _CALL.sub("", node.text) if node.calls else node.text
    return _cut(_BLANK.sub("\n\n", _EVIDENCE.sub("", _TAGS.sub("", text))).strip())


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def _wrong(scores: Sequence[QuestionScore], most: int = 30) -> Section:
    rows = []
    for score in scores:
        first = next((sample for sample in score.samples if not sample.correct), None)
        if first is not None:
            rows.append((score.question, first.answer or "–", score.gold, _OUTCOMES[first.outcome], first.reason))
    if not rows:
        return Text("Not correct", ("Every sample that was run is correct.",))
    note = f"The first {most} of {len(rows)} questions." if len(rows) > most else ""
    return Table("Not correct", ("question", "answer", "gold", "outcome", "why"), tuple(rows[:most]), note=note)


def _figures(summary: Summary) -> tuple[tuple[str, str], ...]:
    a = summary.accuracy
    name = "accuracy" if summary.k == 1 else f"avg@{summary.k}"
    figures = [
        (name, percent(a.mean)),
        ("95% interval", interval(a.interval.low, a.interval.high)),
        ("questions", f"{a.questions:,}" + (f" × {summary.k}" if summary.k > 1 else "")),
        ("turns an episode", number(summary.turns)),
        ("seconds an episode", number(summary.seconds)),
    ]
    return (*figures, ("not run or scored", f"{summary.unclean:,}")) if summary.unclean else tuple(figures)


def _points(difference: float) -> str:
    return "–" if math.isnan(difference) else f"{100 * difference:+.1f}".replace("-", "−")


def _p(p: float) -> str:
    return "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
