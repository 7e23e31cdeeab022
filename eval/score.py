"""Scores: problems and their episodes into one record a question, and a summary of them all.

* The headline counts every selected sample: what errored, could not be scored, or was never run stands in the
  denominator and is named beside it. `clean` is the share among the clean ones.
* Every selected question has exactly one `QuestionScore`, in the order of the problems.
* `summarise` is a pure function of the scores; `scores.jsonl` therefore suffices to write every table again.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import InputError, StorageError
from eval.stats import Estimate, avg_at_k, pass_at_k
from inference.records import encode, read_records
from inference.types import Episode, Usage
from rollout_env.judge import Judge, classify
from rollout_env.outcome import Outcome
from rollout_env.problem import Problem

SCORES = "scores.jsonl"
KIND = "score"


@dataclass(frozen=True, slots=True)
class SampleScore:
    sample: int
    outcome: Outcome
    answer: str | None
    reason: str
    """The judge's, or what failed."""
    tries: int
    turns: int
    malformed: int
    """Turns that broke the form."""
    usage: Usage
    seconds: float
    outages: int = 0
    """Turns that met an unavailable tool."""

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT


@dataclass(frozen=True, slots=True)
class QuestionScore:
    question_id: str
    question: str
    gold: str
    """The canonical gold answer."""
    hops: int | None
    split: str
    judge: str
    selected: int
    """Samples that were to be run."""
    samples: tuple[SampleScore, ...]

    @property
    def points(self) -> tuple[float, ...]:
        """One value per selected sample; a sample that is missing or not clean has earned nothing."""
        earned = [float(sample.correct) for sample in self.samples]
        return (*earned, *[0.0] * (self.selected - len(earned)))

    @property
    def clean_points(self) -> tuple[float, ...]:
        return tuple(float(sample.correct) for sample in self.samples if sample.outcome.clean)

    @property
    def clean(self) -> bool:
        """Every selected sample was run and scored."""
        return len(self.clean_points) == self.selected


@dataclass(frozen=True, slots=True)
class PassAt:
    k: int
    mean: float
    """Unbiased estimate, over the questions it is defined for; NaN for none."""
    questions: int
    """Those with at least k clean samples."""


@dataclass(frozen=True, slots=True)
class Summary:
    judge: str
    k: int
    """Samples a question."""
    accuracy: Estimate
    """avg@k over all selected samples."""
    clean: Estimate
    """avg@k over clean samples alone."""
    pass_at: tuple[PassAt, ...]
    """For k = 1, 2, 4, ... up to the samples a question."""
    outcomes: dict[Outcome, int]
    """Samples by outcome, every outcome named."""
    missing: int
    """Selected samples that were never run."""
    outages: int
    """Samples that met an unavailable tool, whatever became of them."""
    estimated: int
    """Samples whose tokens are in part an estimate: the endpoint did not count them."""
    by_hops: dict[str, Estimate]
    by_split: dict[str, Estimate]
    turns: float
    """Mean a sample, over samples that did not error; so are the three below."""
    completion_tokens: float
    prompt_tokens: float
    seconds: float
    malformed: float
    """Share of turns that broke the form."""

    @property
    def unclean(self) -> int:
        """Selected samples that were not run, or not scored."""
        return self.missing + sum(count for outcome, count in self.outcomes.items() if not outcome.clean)


async def score_episodes(
    problems: Sequence[Problem], episodes: Iterable[Episode], judge: Judge, *, samples: int
) -> list[QuestionScore]:
    """Judge the episodes. Raises InputError for an episode of a question that is not among the problems."""
    by_id: dict[str, list[SampleScore]] = {problem.question.id: [] for problem in problems}
    known = {problem.question.id: problem for problem in problems}
    for episode in episodes:
        problem = known.get(episode.key.question_id)
        if problem is None:
            raise InputError(f"episode {episode.key} answers a question that is not among the problems")
        by_id[problem.question.id].append(await _score(episode, problem, judge))
    return [_question(problem, judge.name, samples, by_id[problem.question.id]) for problem in problems]


def summarise(scores: Sequence[QuestionScore]) -> Summary:
    """The figures of one run."""
    samples = [sample for score in scores for sample in score.samples]
    ran = [sample for sample in samples if sample.outcome is not Outcome.ERRORED]
    k = max((score.selected for score in scores), default=0)
    return Summary(
        judge=", ".join(sorted({score.judge for score in scores})),
        k=k,
        accuracy=avg_at_k([score.points for score in scores]),
        clean=avg_at_k([score.clean_points for score in scores]),
        pass_at=tuple(_pass_at(scores, 2**i) for i in range(k.bit_length())),
        outcomes={outcome: sum(s.outcome is outcome for s in samples) for outcome in Outcome},
        missing=sum(score.selected for score in scores) - len(samples),
        outages=sum(s.outages > 0 for s in samples),
        estimated=sum(s.usage.estimated for s in samples),
        by_hops=_by(scores, lambda score: "unknown" if score.hops is None else str(score.hops)),
        by_split=_by(scores, lambda score: score.split or "unnamed"),
        turns=_mean(s.turns for s in ran),
        completion_tokens=_mean(s.usage.completion_tokens for s in ran),
        prompt_tokens=_mean(s.usage.prompt_tokens for s in ran),
        seconds=_mean(s.seconds for s in ran),
        malformed=_ratio(sum(s.malformed for s in ran), sum(s.turns for s in ran)),
    )


def write_scores(out: Path, scores: Iterable[QuestionScore]) -> None:
    """Replace `out/scores.jsonl`. Raises StorageError."""
    part = out / f".{SCORES}.tmp"
    try:
        part.write_bytes(b"".join(encode(KIND, score.question_id, score) for score in scores))
        part.replace(out / SCORES)
    except OSError as error:
        raise StorageError(f"{out / SCORES}: {error.strerror or error}") from error


def read_scores(out: Path) -> list[QuestionScore]:
    """The scores of a finished evaluation. Raises InputError."""
    path = out / SCORES
    if not path.is_file():
        raise InputError(f"{out}: no {SCORES} there; `proofhound eval score {out}` writes it from a run's episodes")
    return list(read_records(path, QuestionScore))


async def _score(episode: Episode, problem: Problem, judge: Judge) -> SampleScore:
    outcome, verdict = await classify(episode, problem, judge)
    steps = [step for attempt in episode.tries for step in attempt.steps]
    failure = episode.failure if outcome is Outcome.ERRORED else None
    return SampleScore(
        sample=episode.key.sample,
        outcome=outcome,
        answer=episode.answer.text if episode.answer else None,
        reason=verdict.reason if verdict else failure or f"stopped: {episode.stop}",
        tries=len(episode.tries),
        turns=len(steps),
        malformed=sum(step.malformed for step in steps),
        usage=episode.usage,
        seconds=episode.seconds,
        outages=len(episode.outages),
    )


def _question(problem: Problem, judge: str, selected: int, samples: list[SampleScore]) -> QuestionScore:
    return QuestionScore(
        question_id=problem.question.id,
        question=problem.question.text,
        gold=problem.gold.canonical,
        hops=problem.provenance.hops,
        split=problem.provenance.split,
        judge=judge,
        selected=max(selected, len(samples)),
        samples=tuple(sorted(samples, key=lambda sample: sample.sample)),
    )


def _by(scores: Sequence[QuestionScore], label: Callable[[QuestionScore], str]) -> dict[str, Estimate]:
    parts: dict[str, list[tuple[float, ...]]] = {}
    for score in scores:
        parts.setdefault(label(score), []).append(score.points)
    return {name: avg_at_k(parts[name]) for name in sorted(parts, key=lambda n: (len(n), n))}


def _pass_at(scores: Sequence[QuestionScore], k: int) -> PassAt:
    chances = [pass_at_k(len(score.clean_points), int(sum(score.clean_points)), k) for score in scores]
    defined = [chance for chance in chances if not math.isnan(chance)]
    return PassAt(k, _mean(defined), len(defined))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return _ratio(sum(found), len(found))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
