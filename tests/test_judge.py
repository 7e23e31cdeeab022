"""Judge and reward: which answers are equal, what becomes of an episode, what it earns."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import LLMError
from inference.types import Answer, Episode, EpisodeKey, Node, Question, Role, Step, StopReason, Trajectory
from rollout_env.judge import ExactJudge, classify, errored, match, normalise
from rollout_env.outcome import Outcome
from rollout_env.problem import Gold, Problem
from rollout_env.reward import RewardConfig, reward
from rollout_env.sample import groups, score


@pytest.mark.parametrize(
    ("answer", "gold", "equal"),
    [
        ("  the  BEATLES. ", "Beatles", True),
        ("Guinea Bissau", "Guinea-Bissau", True),
        ("US", "U.S.", True),
        ("St John's", "St. John’s", True),
        ("Ｔｏｋｙｏ", "Tokyo", True),
        ("straße", "STRASSE", True),
        ("\\text{Paris}", "Paris", True),
        ("AT and T", "AT&T", True),
        ("3003 m", "3,003 m", True),
        ("3\u202f003 m", "3,003 m", True),
        ("٤٢", "42", True),
        ("5.0", "5", True),
        (".5", "0.50", True),
        ("5 percent", "5%", True),
        ("−40", "-40", True),
        ("40", "-40", False),
        ("1,23", "123", False),
        ("12:30", "1230", False),
        ("1/2", "12", False),
        ("C++", "C", False),
        ("C#", "C", False),
        ("Vitamin", "Vitamin A", False),
        ("A", "A", True),
        ("The The", "the the", True),
        ("Cote", "Côte", False),
        ("Paris or London", "Paris", False),
        ("yes", "no", False),
        ("...", "!", False),
        ("", "x", False),
    ],
)
def test_equality_of_answers(answer, gold, equal):
    assert (match(answer, Gold(("something else", gold))) == gold) is equal


@given(st.text(max_size=12) | st.text(alphabet="0159.,-/% aAthen’()$\u00a0²½٫", max_size=14))
def test_normalising_twice_changes_nothing(text):
    assert normalise(normalise(text)) == normalise(text)


KEY = EpisodeKey("q")
PROBLEM = Problem(Question("q", "?"), Gold(("Paris",)))


def episode(stop, answer=None, *, malformed=False, key=KEY, outage=False):
    nodes = (Node(Role.ASSISTANT, "..."), Node(Role.TOOL, "down", is_error=True, unavailable=outage))
    attempt = Trajectory(nodes, (Step((), 0, (1,), malformed=malformed),), stop)
    return Episode(key, (attempt,), stop, None if answer is None else Answer(answer))


class BrokenJudge:
    name = "broken"

    async def judge(self, question, answer, gold):
        raise LLMError("the judge's endpoint is down")


@pytest.mark.parametrize(
    ("stop", "answer", "judge", "outcome"),
    [
        (StopReason.ANSWERED, "paris", ExactJudge(), Outcome.CORRECT),
        (StopReason.MAX_TURNS, "paris", ExactJudge(), Outcome.CORRECT),
        (StopReason.ANSWERED, "London", ExactJudge(), Outcome.INCORRECT),
        (StopReason.ANSWERED, "I don't know.", ExactJudge(), Outcome.NOT_ATTEMPTED),
        (StopReason.ANSWERED, " . ", ExactJudge(), Outcome.NOT_ATTEMPTED),
        (StopReason.FORMAT, None, ExactJudge(), Outcome.NOT_ATTEMPTED),
        (StopReason.MAX_TURNS, None, ExactJudge(), Outcome.LIMIT),
        (StopReason.CONTEXT, None, ExactJudge(), Outcome.LIMIT),
        (StopReason.TOKEN_BUDGET, None, ExactJudge(), Outcome.LIMIT),
        (StopReason.DEADLINE, None, ExactJudge(), Outcome.LIMIT),
        (StopReason.ERRORED, "paris", ExactJudge(), Outcome.ERRORED),
        (StopReason.ERRORED, None, ExactJudge(), Outcome.ERRORED),
        (StopReason.ANSWERED, "paris", BrokenJudge(), Outcome.UNSCORED),
        (StopReason.ANSWERED, None, BrokenJudge(), Outcome.NOT_ATTEMPTED),
    ],
)
def test_outcomes(stop, answer, judge, outcome):
    found, verdict = asyncio.run(classify(episode(stop, answer), PROBLEM, judge))
    assert found is outcome
    assert (verdict is not None) == (outcome in (Outcome.CORRECT, Outcome.INCORRECT))


@pytest.mark.parametrize(
    ("stop", "answer", "judge", "outcome"),
    [
        (StopReason.ANSWERED, "paris", ExactJudge(), Outcome.CORRECT),
        (StopReason.MAX_TURNS, "paris", ExactJudge(), Outcome.CORRECT),
        (StopReason.ANSWERED, "London", ExactJudge(), Outcome.ERRORED),
        (StopReason.ANSWERED, "I don't know.", ExactJudge(), Outcome.ERRORED),
        (StopReason.FORMAT, None, ExactJudge(), Outcome.ERRORED),
        (StopReason.MAX_TURNS, None, ExactJudge(), Outcome.ERRORED),
        (StopReason.DEADLINE, None, ExactJudge(), Outcome.ERRORED),
        (StopReason.ERRORED, "paris", ExactJudge(), Outcome.ERRORED),
        (StopReason.ANSWERED, "paris", BrokenJudge(), Outcome.UNSCORED),
    ],
)
def test_an_episode_that_met_an_outage_is_never_wrong(stop, answer, judge, outcome):
    met = episode(stop, answer, outage=True)
    found, verdict = asyncio.run(classify(met, PROBLEM, judge))
    assert found is outcome
    assert (verdict is not None) == (outcome is Outcome.CORRECT)
    assert asyncio.run(errored([PROBLEM], judge)(met)) is (outcome is Outcome.ERRORED)
    (sample,) = asyncio.run(score([PROBLEM], [met], judge, RewardConfig()))
    assert (sample.reward is None) == (outcome is not Outcome.CORRECT)


def test_without_an_outage_only_the_stop_says_that_an_episode_errored():
    check = errored([PROBLEM], BrokenJudge())
    assert [asyncio.run(check(episode(stop, "x"))) for stop in (StopReason.ANSWERED, StopReason.ERRORED)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("outcome", "answer", "malformed", "total"),
    [
        (Outcome.CORRECT, "x", False, 2.0),
        (Outcome.CORRECT, "x", True, 1.5),
        (Outcome.INCORRECT, "x", False, 0.0),
        (Outcome.INCORRECT, "x", True, -0.5),
        (Outcome.NOT_ATTEMPTED, None, False, -0.5),
        (Outcome.LIMIT, None, True, -0.5),
        (Outcome.UNSCORED, "x", True, None),
        (Outcome.ERRORED, None, True, None),
    ],
)
def test_rewards(outcome, answer, malformed, total):
    earned = reward(
        episode(StopReason.ANSWERED, answer, malformed=malformed), outcome, RewardConfig(correct=2, format=0.5)
    )
    assert (None if earned is None else earned.total) == total


def test_what_is_not_clean_is_in_no_group():
    episodes = [
        episode(StopReason.ANSWERED, "Paris", key=EpisodeKey("q", 0)),
        episode(StopReason.ERRORED, key=EpisodeKey("q", 1)),
        episode(StopReason.ANSWERED, "Rome", key=EpisodeKey("q", 2)),
    ]
    samples = asyncio.run(score([PROBLEM], episodes, ExactJudge(), RewardConfig()))
    assert [sample.outcome for sample in samples] == [Outcome.CORRECT, Outcome.ERRORED, Outcome.INCORRECT]
    assert [sample.episode.key.sample for sample in groups(samples)["q"]] == [0, 2]
