r"""Judges: is this answer one of the gold answers? And the classification of whole episodes.

* A judge sees the question, the answer and the gold; it returns a `Verdict`, or raises `InfraError` when it cannot
  decide (its endpoint failed, its own answer cannot be read). A judge that raises costs nobody a point: the outcome
  is `unscored`.
* `normalise` maps spellings of one answer to one string: Unicode compatibility forms, letter case, punctuation,
  whitespace, articles, digit scripts, thousands separators, trailing zeros, minus signs, `%`, and a LaTeX `\text{}`
  around the whole. It never maps text to the empty string unless it held no letter, digit or symbol, and it never folds
  accents: those tell names apart. It is idempotent.
* `ExactJudge` accepts an answer that equals a gold answer after normalisation, and nothing else: a longer sentence that
  holds the answer is rejected, so that listing candidates earns nothing.
"""

import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from configs.errors import InfraError
from inference.types import Episode, Question, StopReason
from rollout_env.outcome import Outcome, Verdict
from rollout_env.problem import Gold, Problem


class Judge(Protocol):
    @property
    def name(self) -> str:
        """Stands in every result the judge has a part in."""
        ...

    async def judge(self, question: Question, answer: str, gold: Gold) -> Verdict:
        """Raises InfraError when it cannot decide."""
        ...


class ExactJudge:
    """Equality with a gold answer after `normalise`."""

    name = "exact"

    async def judge(self, question: Question, answer: str, gold: Gold) -> Verdict:
        accepted = match(answer, gold)
        reason = "equals no gold answer" if accepted is None else f"equals {accepted!r}"
        return Verdict(correct=accepted is not None, judge=self.name, reason=reason)


def match(answer: str, gold: Gold) -> str | None:
    """The first gold answer that `answer` equals after normalisation, or None."""
    stated = normalise(answer)
    return next((known for known in gold.answers if stated and normalise(known) == stated), None)


async def classify(episode: Episode, problem: Problem, judge: Judge) -> tuple[Outcome, Verdict | None]:
    """What became of the episode, and the verdict where a judge gave one.

    An errored episode is errored whatever it answered, and one that met an unavailable tool unless it is right after
    all. Without an answer it is `limit` when a limit stopped it and `not_attempted` otherwise. A judge that raises
    leaves it `unscored`.
    """
    if episode.stop is StopReason.ERRORED:
        return Outcome.ERRORED, None
    outcome, verdict = await _by_answer(episode, problem, judge)
    if episode.outages and outcome not in (Outcome.CORRECT, Outcome.UNSCORED):
        return Outcome.ERRORED, None
    return outcome, verdict


def errored(problems: Iterable[Problem], judge: Judge) -> Callable[[Episode], Awaitable[bool]]:
    """Whether an episode of one of `problems` counts as errored. Where no tool was unavailable no judge is asked."""
    by_id = {problem.question.id: problem for problem in problems}

    async def check(episode: Episode) -> bool:
        if not episode.outages:
            return episode.stop is StopReason.ERRORED
        return (await classify(episode, by_id[episode.key.question_id], judge))[0] is Outcome.ERRORED

    return check


async def _by_answer(episode: Episode, problem: Problem, judge: Judge) -> tuple[Outcome, Verdict | None]:
    if episode.answer is None or not normalise(episode.answer.text):
        return (Outcome.LIMIT if episode.stop in _LIMITS else Outcome.NOT_ATTEMPTED), None
    if normalise(episode.answer.text) in _ABSTENTIONS and match(episode.answer.text, problem.gold) is None:
        return Outcome.NOT_ATTEMPTED, None
    try:
        verdict = await judge.judge(problem.question, episode.answer.text, problem.gold)
    except InfraError:
        return Outcome.UNSCORED, None
    return (Outcome.CORRECT if verdict.correct else Outcome.INCORRECT), verdict


_LIMITS = frozenset({StopReason.MAX_TURNS, StopReason.CONTEXT, StopReason.TOKEN_BUDGET, StopReason.DEADLINE})
_ABSTENTIONS = frozenset(
    {
        *("i dont know", "i do not know", "dont know", "unknown", "no answer"),
        *("not found", "not available", "cannot be determined", "cannot determine"),
    }
)

_THIN_SPACES = "\u00a0\u2007\u2009\u202f"
_LATEX_WRAPPER = re.compile(r"\$*\s*\\(?:text|textbf|textit|mathrm|mathbf)\s*\{([^{}]*)\}\s*\$*")
_SPACED_THOUSANDS = re.compile(rf"(?<=\d)[{_THIN_SPACES}](?=\d{{3}}(?!\d))")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)")
_BARE_POINT = re.compile(r"(?:(?<=[\s(-])|^)\.(?=\d)")
_TRAILING_ZEROS = re.compile(r"(?<![\d.])(\d+)\.(\d*?)0*(?!\.?\d)")
_MINUS = re.compile(r"(?:(?<=[\s(])|^)-(?=\d)")
_KEEP_MINUS, _KEEP_POINT, _KEEP_SLASH = "\ue000", "\ue001", "\ue002"
_ONE_SPELLING = str.maketrans({"\u2212": "-", "\u2013": "-", "\u066b": ".", "\u066c": ","})


def normalise(text: str) -> str:
    """The spelling-independent form of an answer; equal forms are equal answers."""
    wrapped = _LATEX_WRAPPER.fullmatch(text.strip())
    text = wrapped[1] if wrapped else text
    words = _words(_numbers(_SPACED_THOUSANDS.sub("", text)))
    kept = [word for word in words if word != "the"] or words[:1]
    while len(kept) > 1 and kept[0] in ("a", "an"):
        kept = kept[1:]
    return " ".join(kept)


def _numbers(text: str) -> str:
    """Give each number one spelling, its own marks protected from the removal of punctuation."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # Private-use characters stand for the protected marks below, format characters (soft hyphens) for nothing.
    text = "".join(c for c in text if unicodedata.category(c) not in ("Co", "Cf"))
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text.translate(_ONE_SPELLING))
    text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    text = _BARE_POINT.sub("0.", text)
    text = _TRAILING_ZEROS.sub(lambda number: number[1] + (f".{number[2]}" if number[2] else ""), text)
    text = _MINUS.sub(_KEEP_MINUS, text)
    text = re.sub(r"(?<=\d)\.(?=\d)", _KEEP_POINT, text)
    return re.sub(r"(?<=\d)/(?=\d)", _KEEP_SLASH, text)


def _words(text: str) -> list[str]:
    """Words without punctuation: full stops and apostrophes vanish, other marks part words."""
    text = text.replace("%", " percent ").replace("per cent", "percent").replace("&", " and ")
    text = re.sub(r"[.'’‘`´]", "", text)
    text = "".join(" " if unicodedata.category(c)[0] in "PZC" and c not in _KEPT else c for c in text)
    for mark, plain in ((_KEEP_MINUS, "-"), (_KEEP_POINT, "."), (_KEEP_SLASH, "/")):
        text = text.replace(mark, plain)
    return text.split()


_KEPT = frozenset({"#", _KEEP_MINUS, _KEEP_POINT, _KEEP_SLASH})
