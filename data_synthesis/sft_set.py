"""The imitation set: expert episodes that are right, prove it, and are clean in every turn.

* An episode is kept when it passes every rule, in this order; the first one broken is its reason:

    unknown_question   its question is not among the problems
    held_out           its question is kept for evaluation
    ...                the surface rules of `cleaning`
    unavailable        a tool was unavailable, and the judge does not accept the answer: no fault of the agent's
    incorrect          the judge does not accept its answer
    no_evidence        it states no chain of evidence
    evidence_fails     a link of the chain is not among its observations
    enough             its question already has `per_question` episodes

* Kept episodes are passed on as they are: text, token ids and views untouched.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from configs.schema import Config
from data_synthesis.cleaning import SURFACE, evidence_fault, surface_fault
from data_synthesis.ledger import Rejection
from data_synthesis.splits import HELDOUT
from inference.types import Episode
from rollout_env.judge import match
from rollout_env.problem import Problem

KIND = "episode"
REASONS = (
    "unknown_question",
    "held_out",
    *(code for code, _ in SURFACE),
    "unavailable",
    "incorrect",
    "no_evidence",
    "evidence_fails",
    "enough",
)


class SftSetConfig(Config):
    per_question: int = Field(default=1, ge=1)
    """Most episodes kept of one question."""


def sft_episodes(
    episodes: Iterable[Episode], problems: Mapping[str, Problem], config: SftSetConfig
) -> Iterator[Episode | Rejection]:
    """Each episode as it comes: itself when it is kept, else why not."""
    kept: Counter[str] = Counter()
    for episode in episodes:
        fault = fault_of(episode, problems)
        if fault is None and kept[episode.key.question_id] >= config.per_question:
            fault = "enough", ()
        if fault is None:
            kept[episode.key.question_id] += 1
            yield episode
            continue
        reason, evidence = fault
        answer = episode.answer.text if episode.answer else None
        yield Rejection(str(episode.key), reason, {"question": episode.key.question_id, "answer": answer}, evidence)


def fault_of(episode: Episode, problems: Mapping[str, Problem]) -> tuple[str, tuple[str, ...]] | None:
    """(reason, what shows it) of the first rule that `episode` breaks, or None."""
    problem = problems.get(episode.key.question_id)
    if problem is None:
        return "unknown_question", ()
    if problem.provenance.split == HELDOUT:
        return "held_out", ()
    if (code := surface_fault(episode)) is not None:
        return code, (str(episode.stop),)
    if episode.answer is None or match(episode.answer.text, problem.gold) is None:
        if episode.failure is not None:
            return "unavailable", (episode.failure,)
        return "incorrect", (f"gold is {problem.gold.canonical!r}",)
    return evidence_fault(episode)
