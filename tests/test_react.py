"""The pure parts of the step loop: what a completion asks for, and the order of limits."""

import pytest

from inference.llm.protocol import Completion, ToolSpec
from inference.react import Limits, decide, limit_reached, step_seed
from inference.types import EpisodeKey, Finish, StopReason

SPECS = (ToolSpec("read", "", {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}),)
GOOD = '<tool_call>{"name": "read", "arguments": {"url": "u"}}</tool_call>'
BAD = '<tool_call>{"name": "fly", "arguments": {}}</tool_call>'
BROKEN = "<tool_call>read u</tool_call>"
MENDED = '<tool_call>{"name": "Read", "arguments": {"url": "u"}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "runs", "answer", "told", "malformed", "progress"),
    [
        (GOOD, 1, None, None, False, True),
        (GOOD + GOOD, 2, None, None, False, True),
        (GOOD + BAD, 1, None, None, True, True),
        (GOOD + BROKEN, 1, None, "not valid JSON", True, True),
        (MENDED, 1, None, None, True, True),
        (BAD, 0, None, None, True, False),
        (BROKEN, 0, None, "not valid JSON", True, False),
        (GOOD + r"\boxed{42}", 1, None, None, False, True),
        (r"\boxed{42}", 0, "42", None, False, True),
        (r"\boxed{?}", 0, None, "placeholder", False, False),
        ("I am sorry.", 0, None, "neither calls a tool nor states an answer", False, False),
        ("", 0, None, "neither calls a tool nor states an answer", False, False),
    ],
)
def test_decide(text, runs, answer, told, malformed, progress):
    decision = decide(Completion(text), SPECS, 0)
    assert sum(request.problem is None for request in decision.requests) == runs
    assert (decision.answer and decision.answer.text) == answer
    assert (told in decision.feedback) if told else decision.feedback is None
    assert (decision.malformed, decision.progress) == (malformed, progress)


@pytest.mark.parametrize("text", [GOOD, r"\boxed{42}", "cut"])
def test_a_cut_turn_runs_nothing_and_answers_nothing(text):
    decision = decide(Completion(text, finish=Finish.LENGTH), SPECS, 0)
    assert decision.requests == ()
    assert decision.answer is None
    assert decision.malformed
    assert "cut" in decision.feedback


LIMITS = Limits(max_turns=5, max_format_errors=3, context_tokens=99, episode_tokens=100, deadline_seconds=10.0)


@pytest.mark.parametrize(
    ("seconds", "tokens", "turns", "format_errors", "stop"),
    [
        (9.9, 99, 4, 2, None),
        (10.0, 100, 5, 3, StopReason.DEADLINE),
        (9.9, 100, 5, 3, StopReason.TOKEN_BUDGET),
        (9.9, 99, 5, 3, StopReason.MAX_TURNS),
        (9.9, 99, 4, 3, StopReason.FORMAT),
    ],
)
def test_the_order_of_limits(seconds, tokens, turns, format_errors, stop):
    reached = limit_reached(LIMITS, seconds=seconds, tokens=tokens, turns=turns, format_errors=format_errors)
    assert reached is stop


def test_absent_limits_are_never_met():
    open_ended = Limits(max_turns=5, max_format_errors=3, context_tokens=99)
    assert limit_reached(open_ended, seconds=1e9, tokens=10**9, turns=0, format_errors=0) is None


def test_the_seed_depends_on_every_part_of_the_key():
    keys = [EpisodeKey("q", 0, 0), EpisodeKey("r", 0, 0), EpisodeKey("q", 1, 0), EpisodeKey("q", 0, 1)]
    seeds = {step_seed(key, attempt, step) for key in keys for attempt in range(3) for step in range(3)}
    assert len(seeds) == 36
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert step_seed(keys[0], 0, 0) == 664128377  # a rollout sampled today is sampled the same way tomorrow
