"""Two runs on the same questions, compared in pairs.

* A pair is a question that both runs have run and scored completely; the others are counted as `left_out`, never
  as losses.
* Single answers are tested by the exact McNemar test, several a question by sign-flip permutation; the interval is a
  bootstrap over questions. All three depend on the seed and the scores alone.
* Scores by different judges are not comparable: `InputError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from configs.errors import InputError
from eval.score import QuestionScore
from eval.stats import PairedTest, paired


@dataclass(frozen=True, slots=True)
class Flip:
    """A question whose score changed."""

    question_id: str
    question: str
    before: float
    after: float
    """Share of its samples that are correct."""


@dataclass(frozen=True, slots=True)
class Comparison:
    test: PairedTest
    gained: tuple[Flip, ...]
    """Better in run b, in the order of run a."""
    lost: tuple[Flip, ...]
    left_out: int
    """Questions of either run that are not a pair."""


def compare(a: Sequence[QuestionScore], b: Sequence[QuestionScore], *, seed: int = 0) -> Comparison:
    """What changed from run a to run b."""
    judges = {score.judge for score in (*a, *b)}
    if len(judges) > 1:
        raise InputError(f"these runs were scored by different judges ({', '.join(sorted(judges))}): score one again")
    other = {score.question_id: score for score in b if score.clean}
    pairs = [(score, other[score.question_id]) for score in a if score.clean and score.question_id in other]
    flips = [Flip(x.question_id, x.question, _share(x), _share(y)) for x, y in pairs]
    single = all(score.selected == 1 for pair in pairs for score in pair)
    return Comparison(
        test=paired([flip.before for flip in flips], [flip.after for flip in flips], single=single, seed=seed),
        gained=tuple(flip for flip in flips if flip.after > flip.before),
        lost=tuple(flip for flip in flips if flip.after < flip.before),
        left_out=len({score.question_id for score in (*a, *b)}) - len(pairs),
    )


def _share(score: QuestionScore) -> float:
    return sum(score.points) / len(score.points)
