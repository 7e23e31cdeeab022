"""Problem sets: written whole, read strictly, gold out of the agent's reach."""

import dataclasses
import json

import pytest

from configs.errors import InputError
from inference.types import Question
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance, read_problems, write_problems

GOLD = "Chott Melrhir"
PROBLEM = Problem(
    Question("q1", "Which point is the lowest?", meta={"hops": "2"}),
    Gold((GOLD, "Melrhir")),
    Provenance(
        ProblemKind.WEBHOP, world="facts", tree={"answer": GOLD, "clues": [1]}, hops=2, evidence=("a.example/x",)
    ),
)


def test_what_is_written_is_read_back_equal(tmp_path):
    path = tmp_path / "new" / "problems.jsonl"
    other = dataclasses.replace(PROBLEM, question=Question("q2", "line\u2028separator \ud800 é"))
    write_problems(path, [PROBLEM, other])
    first, second = read_problems(path)
    assert first == PROBLEM
    assert second.question.text == "line\u2028separator \ufffd é"


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "problems.jsonl"
    write_problems(path, [PROBLEM])
    with pytest.raises(InputError, match="twice"):
        write_problems(path, [PROBLEM, PROBLEM])
    assert read_problems(path) == [PROBLEM]


def row(**data):
    return json.dumps({"schema": 1, "kind": "problem", "key": "x", "data": data})


QUESTION = {"id": "x", "text": "?"}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "not a JSON line"),
        ('{"question": "?"}', "not a record"),
        (row(question=QUESTION), "gold"),
        (row(question=QUESTION, gold={"answers": []}), "no gold answer"),
        (row(question=QUESTION, gold={"answers": ["a", " "]}), "no gold answer"),
        (row(question={"id": "x"}, gold={"answers": ["a"]}), "question.text"),
        (row(question=QUESTION | {"id": "q1"}, gold={"answers": ["a"]}), "twice"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, bad, says):
    path = tmp_path / "problems.jsonl"
    write_problems(path, [PROBLEM])
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + bad)
    with pytest.raises(InputError, match=rf"problems\.jsonl:3: .*{says}"):
        read_problems(path)


def test_an_agent_cannot_reach_gold_from_its_question():
    assert GOLD not in repr(PROBLEM.question)
    assert {field.name for field in dataclasses.fields(Question)} == {"id", "text", "attachments", "meta"}
