"""Rows of trajectories: what is trained, in which context, how steps share rows, and what is refused."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.llm.render import ChatMLRenderer
from inference.types import Finish, Node, Role, Step, StopReason, Trajectory, ViewItem
from tests.chatml_tokenizer import write_tokenizer
from tests.conversations import TEXTS, trajectories
from training.rows import Row, RowError, Target, admit, rows_from_trajectory, target_row


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    return ChatMLRenderer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def prompt_of(renderer, attempt, step):
    return renderer.prompt_ids([attempt.nodes[v.node] for v in step.view], [v.limit for v in step.view])


def written(renderer, attempt, step):
    """The ids the model wrote in a step, and their log-probabilities."""
    node = attempt.nodes[step.completion]
    if node.token_ids is not None:
        return list(node.token_ids), list(node.logprobs)
    ids = renderer.encode(node.text) + [renderer.turn_end_id] * (step.finish is Finish.STOP)
    return ids, [0.0] * len(ids)


def runs(row):
    """(start, end) of each stretch of trained tokens."""
    edges = np.flatnonzero(np.diff([False, *row.trained, False]))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


@given(data=st.data())
def test_every_action_is_trained_once_in_the_context_it_was_sampled_in_and_nothing_else_is(renderer, data):
    attempt = data.draw(trajectories(renderer))
    rows = rows_from_trajectory(attempt.nodes, attempt.steps, renderer, "t")
    stretches = [(row, start, end) for row in rows for start, end in runs(row)]
    assert len(stretches) == len(attempt.steps)
    for (row, start, end), step in zip(stretches, attempt.steps, strict=True):
        ids, logprobs = written(renderer, attempt, step)
        assert row.input_ids[:start].tolist() == prompt_of(renderer, attempt, step)
        assert row.input_ids[start:end].tolist() == ids
        assert row.logprobs[start:end].tolist() == logprobs
    for row in rows:
        assert row.trained[-1]
        assert not row.logprobs[~row.trained].any()


@given(data=st.data())
def test_steps_share_a_row_exactly_while_the_prompt_only_grows(renderer, data):
    attempt = data.draw(trajectories(renderer))
    whole = [prompt_of(renderer, attempt, s) + written(renderer, attempt, s)[0] for s in attempt.steps]
    breaks = sum(new[: len(old)] != old for old, new in pairwise(whole))
    assert len(rows_from_trajectory(attempt.nodes, attempt.steps, renderer, "t")) == 1 + breaks


def test_the_end_of_a_turn_is_trained_and_the_newline_after_it_is_not(renderer):
    nodes = (Node(Role.USER, "q"), Node(Role.ASSISTANT, "a"), Node(Role.TOOL, "r"), Node(Role.ASSISTANT, "b"))
    steps = (
        Step((ViewItem(0),), 1, (2,)),
        Step((ViewItem(0), ViewItem(1), ViewItem(2)), 3, finish=Finish.LENGTH),
    )
    [row] = rows_from_trajectory(nodes, steps, renderer, "t")
    end = int(np.flatnonzero(row.input_ids == renderer.turn_end_id)[1])
    assert row.trained[end]
    assert not row.trained[end + 1]
    assert renderer.decode(row.input_ids[end + 1 : end + 2].tolist()) == "\n"
    assert row.input_ids[row.trained].tolist() == [*renderer.encode("a"), renderer.turn_end_id, *renderer.encode("b")]


@given(prompt=st.lists(TEXTS, min_size=1, max_size=4), text=TEXTS)
def test_a_target_is_its_prompt_and_one_trained_turn(renderer, prompt, text):
    nodes = tuple(Node(Role.TOOL if i else Role.USER, t, call_id=str(i)) for i, t in enumerate(prompt))
    limits = (None, *(0,) * (len(nodes) - 1))
    row = target_row(Target("x", nodes, text, limits, weight=0.5), renderer)
    context = renderer.prompt_ids(nodes, limits)
    assert row.input_ids.tolist() == [*context, *renderer.encode(text), renderer.turn_end_id]
    assert row.trained.tolist() == [i >= len(context) for i in range(len(row))]
    assert row.weight == 0.5


NODE = Node(Role.ASSISTANT, "a", token_ids=(65, 66), logprobs=(-1.0, -2.0))
QUESTION = Node(Role.USER, "q")
STEP = Step((ViewItem(0),), 1)


@pytest.mark.parametrize(
    ("node", "steps", "reason"),
    [
        (Node(Role.ASSISTANT, "a", token_ids=(65,)), (STEP,), "step 0: no recorded log-probabilities"),
        (Node(Role.ASSISTANT, "a"), (STEP,), "step 0: no recorded log-probabilities"),
        (Node(Role.ASSISTANT, "a", token_ids=(65, 66), logprobs=(-1.0,)), (STEP,), "1 log-probabilities for 2 tokens"),
        (NODE, (STEP, STEP), "one completion stands for two steps"),
    ],
)
def test_a_record_that_cannot_be_trained_is_an_error_with_its_name(renderer, node, steps, reason):
    with pytest.raises(RowError, match=f"^q1/try0: .*{reason}"):
        rows_from_trajectory((QUESTION, node), steps, renderer, "q1/try0", need_logprobs=True)


def row_of(trained):
    return Row("r", np.arange(len(trained), dtype=np.int32), np.array(trained, np.bool_), np.zeros(len(trained), "f4"))


@pytest.mark.parametrize(
    ("trained", "limit", "reason"),
    [
        ([False, True], 2, None),
        ([False, True], None, None),
        ([False, False], 2, "no trained token"),
        ([False, True, True], 2, "3 tokens, more than the limit of 2"),
        ([True, True], 2, "the first token is trained, which has no context"),
    ],
)
def test_rows_that_would_be_cut_or_train_nothing_are_refused(trained, limit, reason):
    kept, refused = admit([row_of(trained)], limit)
    assert (len(kept), [r.reason for r in refused]) == ((1, []) if reason is None else (0, [reason]))
    assert all(refusal.id == "r" for refusal in refused)


def test_a_try_without_steps_has_no_rows(renderer):
    attempt = Trajectory((QUESTION,), (), StopReason.CONTEXT)
    assert rows_from_trajectory(attempt.nodes, attempt.steps, renderer, "t") == []
