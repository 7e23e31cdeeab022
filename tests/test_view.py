"""The window view: a worked table, and its invariants on arbitrary conversations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.types import Node, Role, ViewItem
from inference.view import WindowView


def conversation(turns):
    """One assistant node and `n` results for each number in `turns`; -1 stands for a feedback node instead."""
    nodes = [Node(Role.SYSTEM, "s"), Node(Role.USER, "q")]
    for i, results in enumerate(turns):
        nodes.append(Node(Role.ASSISTANT, f"turn {i}"))
        if results < 0:
            nodes.append(Node(Role.USER, "feedback"))
        nodes.extend(Node(Role.TOOL, f"result {i}", call_id=f"{i}.{j}") for j in range(results))
    return nodes


def shown_turns(view, turns):
    """Indices of the turns whose observations are not blanked."""
    nodes = conversation(turns)
    return sorted({int(nodes[i.node].text.split()[1]) for i in view(nodes) if _is_tool(nodes, i) and i.limit != 0})


def _is_tool(nodes, item):
    return nodes[item.node].role is Role.TOOL


@pytest.mark.parametrize(
    ("view", "turns", "kept"),
    [
        (WindowView(2), [], []),
        (WindowView(2), [1, 1], [0, 1]),
        (WindowView(2), [1, 1, 1], [1, 2]),
        (WindowView(2), [1, 3, 1, 1], [2, 3]),
        (WindowView(2), [1, 1, -1, 0, -1], [0, 1]),  # turns without observations take no place
        (WindowView(0), [1, 1], []),
        (WindowView(None), [1] * 9, list(range(9))),
        (WindowView(2, slack=2), [1] * 4, [0, 1, 2, 3]),
        (WindowView(2, slack=2), [1] * 5, [3, 4]),
        (WindowView(2, slack=2), [1] * 6, [3, 4, 5]),
        (WindowView(2, slack=2), [1] * 8, [6, 7]),
    ],
)
def test_which_turns_are_kept(view, turns, kept):
    assert shown_turns(view, turns) == kept


def test_forms():
    nodes = conversation([1, 2])
    assert WindowView(1, cut=9)(nodes) == (
        *(ViewItem(i) for i in range(3)),
        ViewItem(3, 0),
        ViewItem(4),
        ViewItem(5, 9),
        ViewItem(6, 9),
    )


TURNS = st.lists(st.integers(-1, 3), max_size=30)
VIEWS = st.builds(WindowView, st.integers(0, 6), st.one_of(st.none(), st.integers(1, 50)), slack=st.integers(0, 4))


@given(TURNS, VIEWS)
def test_only_observations_change_and_a_turn_shares_its_fate(turns, view):
    nodes = conversation(turns)
    items = view(nodes)
    assert [item.node for item in items] == list(range(len(nodes)))
    assert all(item.limit is None for item in items if not _is_tool(nodes, item))
    fates = [{i.limit for i in items if _is_tool(nodes, i) and nodes[i.node].text == f"result {t}"} for t in range(30)]
    assert all(len(fate) <= 1 for fate in fates)
    limits = [item.limit for item in items if _is_tool(nodes, item)]
    assert limits == sorted(limits, key=lambda limit: limit != 0)  # blanked ones are the oldest


@given(TURNS, VIEWS)
def test_the_window_holds_between_k_and_k_plus_slack_turns(turns, view):
    observed = sum(results > 0 for results in turns)
    kept = len(shown_turns(view, turns))
    assert min(observed, view.window) <= kept <= min(observed, view.window + view.slack)


@given(TURNS, VIEWS)
def test_blanks_never_come_back(turns, view):
    before = {item.node for item in view(conversation(turns[:-1])) if item.limit == 0}
    assert before <= {item.node for item in view(conversation(turns)) if item.limit == 0}
