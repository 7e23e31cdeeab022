"""WebHop: one answer by an independent brute force, no leak, the asked shape; each check is seen to reject."""

import itertools
import random

import pytest

from data_synthesis.facts import Fact, FactTable, table
from data_synthesis.tree import Edge, Leaf, Variable, from_json, num_edges, solve, to_json
from data_synthesis.webhop import Candidate, Rejection, WebHopConfig, generate, reject_reason
from data_synthesis.world import generate_world
from data_synthesis.writer import write_question

WORLD = generate_world(11, 30)
PROBLEMS = [p for p in generate(WORLD, WebHopConfig(), 40, "w") if not isinstance(p, Rejection)]


def holds(variable: Variable, entity: str, facts: FactTable, entities: list[str]) -> bool:
    """Whether `entity` fits, tried one by one over every entity: no sets, no indexes."""
    for edge in variable.edges:
        pairs = [
            (f.object, f.subject) if edge.inverse else (f.subject, f.object)
            for f in facts
            if f.relation == edge.relation
        ]
        others = [o for s, o in pairs if s == entity]
        if isinstance(edge.child, Leaf):
            fits = any(edge.child.fits(o) for o in others)
        else:
            fits = any(holds(edge.child, o, facts, entities) for o in others)
        if not fits:
            return False
    return True


def test_every_question_has_exactly_its_answer_by_brute_force():
    entities = list(dict.fromkeys(itertools.chain.from_iterable((f.subject, f.object) for f in WORLD)))
    for problem in PROBLEMS[:15]:
        tree = from_json(problem.provenance.tree)
        assert [e for e in entities if holds(tree, e, WORLD, entities)] == [problem.gold.canonical]


def test_nothing_on_the_path_is_named():
    for problem in PROBLEMS:
        words = problem.question.text.replace("?", " ").replace(".", " ")
        for name in problem.provenance.tree["path"]:
            assert f" {name} " not in f" {words} "


def test_hops_and_shape_are_as_said():
    for problem in PROBLEMS:
        tree = from_json(problem.provenance.tree)
        assert num_edges(tree) == problem.provenance.hops
        shape = problem.question.meta["shape"]
        countries = sum(1 for v in tree.walk()) - (shape[1] == "o")
        assert countries == int(shape[0])
        assert from_json(to_json(tree)) == tree


def test_same_seed_same_questions_another_seed_others():
    again = [p for p in generate(WORLD, WebHopConfig(), 40, "w") if not isinstance(p, Rejection)]
    assert again == PROBLEMS
    other = [p for p in generate(WORLD, WebHopConfig(seed=1), 40, "w") if not isinstance(p, Rejection)]
    assert {p.question.text for p in other} != {p.question.text for p in PROBLEMS}


FACTS = table(
    [
        Fact("A", "capital", "Acity"),
        Fact("B", "capital", "Bcity"),
        Fact("C", "capital", "Ccity"),
        *(Fact("A", "borders", x) for x in "BC"),
        *(Fact(x, "borders", "A") for x in "BC"),
        *(Fact(x, "religion", "Sun") for x in "BC"),
        *(Fact(x, "natural resource", "Tin") for x in ("B", "N2")),
        *(Fact(f"N{i}", "borders", "C") for i in range(9)),
        Fact("N1", "natural resource", "Zinc"),
    ]
)


def border(leaf_country: str, *clues: Edge) -> Variable:
    return Variable((*clues, Edge("borders", Variable((Edge("capital", Leaf(leaf_country)),)))))


@pytest.mark.parametrize(
    ("tree", "answer", "path", "reason"),
    [
        (border("Acity", Edge("natural resource", Leaf("Tin"))), "B", ("B", "A"), None),
        (border("Acity", Edge("religion", Leaf("Sun"))), "B", ("B", "A"), "not_unique"),
        (border("Acity", Edge("natural resource", Leaf("Tin"))), "C", ("C", "A"), "not_unique"),
        (border("Acity", Edge("natural resource", Leaf("Tin"))), "Tin", ("Tin", "A"), "answer_leaks"),
        (border("Acity", Edge("natural resource", Leaf("Tin"))), "B", ("B", "Acity"), "answer_leaks"),
        (border("Ccity", Edge("natural resource", Leaf("Zinc"))), "N1", ("N1", "C"), "too_wide"),
        (
            border("Acity", Edge("natural resource", Leaf("Tin")), Edge("religion", Leaf("Sun"))),
            "B",
            ("B", "A"),
            "idle_clue",
        ),
    ],
)
def test_reasons(tree, answer, path, reason):

    text = write_question(tree, random.Random(0))
    assert reject_reason(Candidate(tree, answer, path, "2c"), text, FACTS, WebHopConfig()) == reason


def test_solve_follows_both_directions_and_decades():
    facts = table(
        [Fact("A", "independence", "1962"), Fact("B", "independence", "1971"), Fact("A", "export partner", "B")]
    )
    assert solve(Variable((Edge("independence", Leaf("1960", decade=True)),)), facts) == {"A"}
    exporter = Variable((Edge("independence", Leaf("1962")),))
    assert solve(Variable((Edge("export partner", exporter, inverse=True),)), facts) == {"B"}
