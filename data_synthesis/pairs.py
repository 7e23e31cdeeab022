"""Preference pairs from one policy's own rollouts: two episodes of one question, ranked by correctness alone.

* Chosen: right, and it passes every rule of `sft_set`, evidence included. Rejected: a valid final answer that is wrong.
  Both pass the surface rules, so what tells them apart is being right and nothing of form.
* Nothing else decides: not length, not turns, not style. The lengths of both sides are reported (`lengths`), so that a
  bias that came with the data can be seen.
* Within a question, rights and wrongs are drawn in a seeded order and paired one to one, `per_question` pairs at most,
  no episode in two pairs.

    unknown_question, held_out, the surface rules, unavailable    as in `sft_set`
    unproved     right, but its chain of evidence does not hold: neither side takes it
    no_wrong     right, but no wrong one is left to set against it
    no_right     wrong, but no right one is left
    enough       its question already has `per_question` pairs
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from pydantic import Field

from configs.schema import Config
from data_synthesis.cleaning import SURFACE
from data_synthesis.ledger import Rejection
from data_synthesis.sft_set import fault_of
from inference.types import Episode
from rollout_env.problem import Problem

KIND = "pair"
REASONS = (
    "unknown_question",
    "held_out",
    *(code for code, _ in SURFACE),
    "unavailable",
    "unproved",
    "no_wrong",
    "no_right",
    "enough",
)
_UNPROVED = frozenset({"no_evidence", "evidence_fails"})


class PairsConfig(Config):
    per_question: int = Field(default=2, ge=1)
    """Most pairs of one question."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """What `training` reads as a preference."""

    id: str
    question_id: str
    chosen: Episode
    rejected: Episode


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of one side, in sampled tokens where the engine gave ids, else in words."""

    mean_length: float
    median_length: float
    mean_turns: float


def make_pairs(
    episodes: Iterable[Episode], problems: Mapping[str, Problem], config: PairsConfig
) -> Iterator[Pair | Rejection]:
    """Rejections as episodes are read, then the pairs, question by question."""
    rights: dict[str, list[Episode]] = defaultdict(list)
    wrongs: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        fault = fault_of(episode, problems)
        if fault is None:
            rights[episode.key.question_id].append(episode)
        elif fault[0] == "incorrect":
            wrongs[episode.key.question_id].append(episode)
        else:
            yield _turned_down(episode, "unproved" if fault[0] in _UNPROVED else fault[0], fault[1])
    for question in dict.fromkeys([*rights, *wrongs]):
        yield from _pair_up(question, rights[question], wrongs[question], config)


def lengths(side: Sequence[Episode]) -> Lengths:
    """Of no episodes: NaN."""
    if not side:
        return Lengths(*(float("nan"),) * 3)
    sizes = [_length(episode) for episode in side]
    return Lengths(mean(sizes), median(sizes), mean(episode.turns for episode in side))


def _pair_up(
    question: str, rights: list[Episode], wrongs: list[Episode], config: PairsConfig
) -> Iterator[Pair | Rejection]:
    rng = random.Random(f"pairs/{config.seed}/{question}")
    rights, wrongs = rng.sample(rights, len(rights)), rng.sample(wrongs, len(wrongs))
    count = min(len(rights), len(wrongs), config.per_question)
    for number in range(count):
        yield Pair(f"{question}/{number}", question, rights[number], wrongs[number])
    full = count == config.per_question
    for left, alone in ((rights[count:], "no_wrong"), (wrongs[count:], "no_right")):
        for episode in left:
            yield _turned_down(episode, "enough" if full else alone, ())


def _turned_down(episode: Episode, reason: str, evidence: tuple[str, ...]) -> Rejection:
    answer = episode.answer.text if episode.answer else None
    return Rejection(str(episode.key), reason, {"question": episode.key.question_id, "answer": answer}, evidence)


def _length(episode: Episode) -> int:
    total = 0
    for attempt in episode.tries:
        for step in attempt.steps:
            node = attempt.nodes[step.completion]
            total += len(node.token_ids) if node.token_ids is not None else len(node.text.split())
    return total
