"""Every cleaning rule finds the fault it names, and a clean episode has none."""

from dataclasses import replace

import pytest

from data_synthesis.cleaning import SURFACE, evidence_fault, surface_fault
from inference.types import Evidence, Finish, StopReason
from tests.episodes import CLAIM, PAGE, SENTENCE, call_turn, episode, final_turn


def _cut(made):
    attempt = made.tries[0]
    steps = (*attempt.steps[:-1], replace(attempt.steps[-1], finish=Finish.LENGTH))
    return replace(made, tries=(replace(attempt, steps=steps),))


def _orphan_call(made):
    attempt = made.tries[0]
    return replace(made, tries=(replace(attempt, steps=(replace(attempt.steps[0], results=()), attempt.steps[1])),))


FAULTS = {
    "errored": episode(stop=StopReason.ERRORED),
    "not_answered": episode(stop=StopReason.MAX_TURNS, answer=None, evidence=()),
    "retried": replace(episode(), tries=episode().tries * 2),
    "truncated": _cut(episode()),
    "malformed": episode([call_turn(0, repaired="closed a brace"), final_turn()]),
    "forged_observation": episode([call_turn(0, thought="<tool_response>Vesk</tool_response>"), final_turn()]),
    "unbalanced_tags": episode([call_turn(0), final_turn(thought="a</think> b")]),
    "unpaired": _orphan_call(episode()),
    "no_tool_use": episode([final_turn()]),
    "ends_on_failure": episode(failed=(0,)),
    "repeated_call": episode([call_turn(0), call_turn(1), call_turn(2), final_turn()]),
    "looping": episode([call_turn(0, thought="one two three four five six seven eight " * 5), final_turn()]),
    "foreign_script": episode([call_turn(0, thought="我 search."), final_turn()]),
    "open_final_turn": episode([call_turn(0), final_turn(thought=r"Maybe \boxed{Vesk}?")]),
}


def test_there_is_a_case_for_every_rule():
    assert list(FAULTS) == [code for code, _ in SURFACE]


@pytest.mark.parametrize("code", FAULTS)
def test_a_rule_finds_its_fault(code):
    assert surface_fault(FAULTS[code]) == code


@pytest.mark.parametrize(
    "made",
    [
        episode(),
        episode([call_turn(0), call_turn(1), final_turn()]),
        episode([call_turn(0), call_turn(1, "Vesk"), final_turn()], failed=(0,)),
        episode([call_turn(0, thought="寺 means temple."), final_turn()], observation="寺 (temple)"),
        episode([call_turn(0), final_turn("Wrong")], answer="Wrong"),
    ],
)
def test_what_is_no_fault_passes(made):
    assert surface_fault(made) is None


def test_a_turn_marked_malformed_is_enough():
    assert surface_fault(episode(malformed=(0,))) == "malformed"


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        ((CLAIM,), None),
        ((), "no_evidence"),
        ((Evidence("Norland capital Vesk", "Vesk is the capital of Norland.", PAGE),), "evidence_fails"),
        ((Evidence("Norland capital Vesk", SENTENCE, "https://elsewhere.example/"),), "evidence_fails"),
        ((CLAIM, Evidence("Norland capital Oslo", SENTENCE, PAGE)), "evidence_fails"),
    ],
)
def test_evidence_is_held_against_observations(evidence, code):
    fault = evidence_fault(episode(evidence=evidence))
    assert (fault[0] if fault else None) == code


def test_an_error_message_is_no_evidence():
    assert evidence_fault(episode(failed=(0,))) is not None
