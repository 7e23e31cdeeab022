"""The verification pass: each part of the score, ties, and who is no candidate."""

from dataclasses import replace

import pytest

from inference.types import (
    Answer,
    Episode,
    EpisodeKey,
    Evidence,
    Node,
    Question,
    Role,
    StopReason,
    ToolCall,
    Trajectory,
)
from inference.verify import folded, question_terms, rank, score, select

QUESTION = Question("q", "Which city is the capital of the country that borders Dorn and has the code .av?")
PAGES = {
    "http://a": "Avaland borders Dorn. The internet code of Avaland is .av.",
    "http://b": "The capital of Avaland is Bremont.",
    "http://c": "The capital of Corvia is Elmstead.",
    "http://e": "The port of Avaland is Marlin. Avaland is governed from Bremont.",
    "http://d": "Long ago the capital of Avaland was Elmstead. People in Avaland speak Dornish; Avish.",
}
BORDER = Evidence("Avaland borders Dorn", "Avaland borders Dorn.", "http://a")
CODE = Evidence("Avaland has .av", "The internet code of Avaland is .av.", "http://a")
CAPITAL = Evidence("Bremont is the capital of Avaland", "The capital of Avaland is Bremont.", "http://b")
OTHER = Evidence("Elmstead is the capital of Corvia", "The capital of Corvia is Elmstead.", "http://c")
FORMER = Evidence("Elmstead is the capital of Avaland", "Long ago the capital of Avaland was Elmstead.", "http://d")
BOTH = Evidence(
    "Avaland speaks Dornish",
    "Long ago the capital of Avaland was Elmstead. People in Avaland speak Dornish; Avish.",
    "http://d",
)
FALSE = Evidence("Bremont is large", "Bremont is a large city.", "http://b")


def episode(answer, evidence=(), sample=0, stop=StopReason.ANSWERED):
    nodes = [Node(Role.USER, "q")]
    for i, (url, text) in enumerate(PAGES.items()):
        nodes.append(Node(Role.ASSISTANT, "", calls=(ToolCall(f"c{i}", "scrape", {"url": url}),)))
        nodes.append(Node(Role.TOOL, text, call_id=f"c{i}"))
    given = None if answer is None else Answer(answer, tuple(evidence))
    return Episode(EpisodeKey("q", sample), (Trajectory(tuple(nodes), (), stop, given),), stop, given)


WHOLE = (BORDER, CODE, CAPITAL)


@pytest.mark.parametrize(
    ("answer", "evidence", "expected"),
    [
        ("Bremont", WHOLE, (1, 1, 1, 1)),
        ("the bremont!", WHOLE, (1, 1, 1, 1)),
        ("Bremont", (*WHOLE, FALSE), (3 / 4, 1, 1, 1)),
        ("Elmstead", WHOLE, (1, 0, 1, 1)),
        ("Brem", WHOLE, (1, 0, 1, 1)),
        ("Bremont", (BORDER, CAPITAL), (1, 1, 1 / 2, 1)),
        ("Elmstead", (BORDER, CODE, OTHER), (1, 1, 1, 2 / 3)),
        ("Elmstead", (OTHER,), (1, 1, 0, 0)),
        ("Elmstead", (BORDER, CODE, FORMER), (2 / 3, 0, 1, 1)),  # the quote denies what is claimed
        ("Elmstead", (BORDER, CODE, BOTH), (1, 0, 1, 1)),  # it stands in a quote that serves another claim
        ("Avish", (BORDER, CODE, BOTH), (1, 0, 1, 1)),  # no link claims it
        ("Dornish", (BORDER, CODE, BOTH), (1, 1, 1, 1)),
        ("Bremont", (FALSE, *WHOLE, *WHOLE, *WHOLE), (3 / 4, 1, 1, 1)),  # a link said thrice is one link
        ("Bremont", (FALSE,), (0, 0, 0, 0)),
        ("Bremont", (), (0, 0, 0, 0)),
        (None, (), (0, 0, 0, 0)),
    ],
)
def test_the_parts_of_the_score(answer, evidence, expected):
    result = score(QUESTION, episode(answer, evidence))
    assert (result.links, result.answer, result.coverage, result.connection) == pytest.approx(expected)
    assert result.total == pytest.approx(expected[0] * expected[1] * expected[2] * expected[3])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (QUESTION.text, {"dorn", ".av"}),
        ('What does "blue white" stand for in 1,990?', {"blue", "white", "1990"}),
        ("Name the sea that is far away.", set()),
    ],
)
def test_what_a_question_names(text, expected):
    assert question_terms(text) == expected


def test_the_chain_that_holds_beats_the_majority():
    wrong = [episode("Elmstead", (BORDER, CODE, OTHER), i) for i in range(3)]
    winner = select(QUESTION, [*wrong, episode("Bremont", WHOLE, 3)])
    assert (winner.episode.answer.text, winner.agreement) == ("Bremont", 1)


PORT = Evidence("Avaland port Marlin", "The port of Avaland is Marlin.", "http://e")
FALSE_CAPITAL = Evidence("The capital of Avaland is Marlin", "The port of Avaland is Marlin.", "http://e")
GOVERNED = Evidence("Avaland capital Bremont", "Avaland is governed from Bremont.", "http://e")


@pytest.mark.parametrize("wrong", [PORT, FALSE_CAPITAL])
def test_what_was_asked_beats_another_fact_of_the_same_place(wrong):
    others = [episode("Marlin", (BORDER, CODE, wrong), i) for i in range(3)]
    right = episode("Bremont", WHOLE, 3)
    assert score(QUESTION, others[0]).total == score(QUESTION, right).total == 1
    assert select(QUESTION, [*others, right]).episode is right


@pytest.mark.parametrize(
    ("right", "wrong"), [((BORDER, CODE, GOVERNED), (BORDER, CODE, PORT)), ((), (BORDER, CODE, CAPITAL))]
)
def test_where_wording_says_nothing_the_majority_decides(right, wrong):
    many = [episode("Bremont", right, i) for i in (1, 2)]
    assert select(QUESTION, [episode("Marlin", wrong, 0), *many]).episode is many[0]


def test_ties_go_to_agreement_and_then_to_the_lower_sample():
    unsupported = [episode("X", (), 0), episode("Y", (), 3), episode("y.", (), 2), episode(None, (), 1)]
    ranked = rank(QUESTION, unsupported)
    assert [c.episode.key.sample for c in ranked] == [2, 3, 0, 1]
    assert [c.agreement for c in ranked] == [2, 2, 1, 0]


def test_an_errored_episode_is_no_candidate():
    errored = replace(episode("Bremont", WHOLE), stop=StopReason.ERRORED)
    assert select(QUESTION, [errored]) is None
    assert select(QUESTION, [errored, episode(None, (), 5)]).episode.key.sample == 5
    assert select(QUESTION, []) is None


def test_order_does_not_matter():
    candidates = [episode("X", (), 0), episode("Bremont", WHOLE, 1), episode("Y", (FALSE,), 2)]
    assert rank(QUESTION, candidates) == rank(QUESTION, candidates[::-1])


@pytest.mark.parametrize(("a", "b"), [("The Hague", "hague"), ("São Tomé", "Sao Tome"), ("x  y", "X, Y")])
def test_equal_answers_fold_to_equal_text(a, b):
    assert folded(a) == folded(b)
