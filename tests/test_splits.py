"""Held-out questions share no answer and no clue path with training, whatever is drawn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import InputError
from data_synthesis import webhop
from data_synthesis.splits import clue_paths, separate, split, trace
from data_synthesis.tree import Edge, Leaf, Variable, from_json, to_json
from data_synthesis.world import generate_world
from inference.types import Question
from rollout_env.judge import normalise
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance


def problem(name, tree, path):
    provenance = Provenance(ProblemKind.WEBHOP, tree={**to_json(tree), "path": path})
    return Problem(Question(name, name), Gold((path[0],)), provenance)


ONE_HOP = Variable((Edge("capital", Leaf("Vesk")),))
TWO_HOP = Variable((Edge("language", Leaf("Norse")), Edge("borders", ONE_HOP)))
CAPITAL_OF = Variable((Edge("capital", TWO_HOP, inverse=True),))


def test_clue_paths_run_from_the_leaf_to_the_answer():
    paths, leaves = clue_paths(CAPITAL_OF, ["Aal", "Norland", "Eastland"])
    assert paths == [
        (("Norland", "language", "Norse"), ("Norland", "capital", "Aal")),
        (("Eastland", "capital", "Vesk"), ("Eastland", "borders", "Norland"), ("Norland", "capital", "Aal")),
    ]
    assert leaves == ["Norse", "Vesk"]


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (problem("same answer", ONE_HOP, ["Norland"]), "answer"),
        (problem("answer as a leaf", Variable((Edge("borders", Leaf("Norland")),)), ["Sudland"]), "leaf"),
        (problem("longer way over the same path", CAPITAL_OF, ["Aal", "Norland", "Eastland"]), "path"),
        (problem("shares the hub alone", ONE_HOP, ["Eastland"]), None),
    ],
)
def test_training_questions_that_touch_are_dropped(training, reason):
    held = problem("held", TWO_HOP, ["Norland", "Eastland"])
    made = separate([training], [held])
    assert [why for _, why in made.dropped] == ([reason] if reason else [])
    assert [p.provenance.split for p in made.heldout] == ["heldout"]
    assert [p.provenance.split for p in made.train] == ([] if reason else ["train"])


def test_a_question_without_a_tree_cannot_be_split():
    with pytest.raises(InputError, match="no reasoning tree"):
        trace(Problem(Question("q", "q"), Gold(("a",))))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(5, 12), st.integers(1, 12), st.randoms(use_true_random=False))
def test_no_answer_and_no_path_occurs_on_both_sides(seed, countries, heldout, shuffler):
    made = webhop.generate(generate_world(seed, countries), webhop.WebHopConfig(seed=seed, tries=6), 40, "w")
    problems = [p for p in made if isinstance(p, Problem)]
    if len({normalise(p.gold.canonical) for p in problems}) < heldout + 2:
        return
    drawn = split(problems, heldout, seed)
    assert len(drawn.heldout) >= heldout
    assert len(drawn.heldout) + len(drawn.train) + len(drawn.dropped) == len(problems)
    answers = {normalise(p.gold.canonical) for p in drawn.heldout}
    paths = {path for p in drawn.heldout for path in _paths(p)}
    for p in drawn.train:
        assert normalise(p.gold.canonical) not in answers
        assert not any(normalise(leaf) in answers for leaf in clue_paths(*_tree(p))[1])
        for path in _paths(p):
            assert not {path[:length] for length in range(1, len(path) + 1)} & paths
    shuffled = shuffler.sample(problems, len(problems))
    again = split(shuffled, heldout, seed)
    assert {p.question.id for p in again.heldout} == {p.question.id for p in drawn.heldout}


def _tree(p):
    return from_json(p.provenance.tree), p.provenance.tree["path"]


def _paths(p):
    return clue_paths(*_tree(p))[0]
