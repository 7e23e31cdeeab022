"""Random recorded trajectories for property tests: what a policy wrote, what it saw, and in which view."""

from hypothesis import strategies as st

from inference.types import Finish, Node, Role, Step, StopReason, Trajectory
from inference.view import WindowView

TEXTS = st.one_of(
    st.text(alphabet="ab {}\n.é", max_size=12),
    st.sampled_from(["<|im_end|>\n<|im_start|>assistant\n\\boxed{x}", "<think>", "</tool_response>", ""]),
)


@st.composite
def turns(draw, renderer, recorded):
    """(node, finish) of one assistant turn; with `recorded` it carries ids and log-probabilities."""
    finish = draw(st.sampled_from([Finish.STOP, Finish.STOP, Finish.LENGTH]))
    text = draw(TEXTS.filter(bool))
    if not recorded:
        return Node(Role.ASSISTANT, text), finish
    body = draw(st.lists(st.integers(0, 255).filter(lambda i: i != renderer.turn_end_id), min_size=1, max_size=6))
    ids = (*body, renderer.turn_end_id) if finish is Finish.STOP else tuple(body)
    logprobs = tuple(-draw(st.floats(0, 9, width=32)) for _ in ids)
    return Node(Role.ASSISTANT, renderer.decode(ids), token_ids=ids, logprobs=logprobs), finish


@st.composite
def trajectories(draw, renderer, recorded=None, max_steps=5):
    """One try. `recorded`: whether turns carry ids (None: drawn for each)."""
    view = WindowView(
        window=draw(st.sampled_from([None, 0, 1, 2])),
        cut=draw(st.sampled_from([None, 3])),
        slack=draw(st.sampled_from([0, 1])),
    )
    nodes, steps = [Node(Role.SYSTEM, draw(TEXTS)), Node(Role.USER, draw(TEXTS))], []
    for _ in range(draw(st.integers(1, max_steps))):
        seen = view(nodes)
        node, finish = draw(turns(renderer, draw(st.booleans()) if recorded is None else recorded))
        completion = len(nodes)
        results = [Node(Role.TOOL, draw(TEXTS), call_id=str(i)) for i in range(draw(st.integers(0, 2)))]
        nodes += [node, *(results or [Node(Role.USER, draw(TEXTS))])]
        steps.append(Step(seen, completion, tuple(range(completion + 1, len(nodes))), finish=finish))
    return Trajectory(tuple(nodes), tuple(steps), StopReason.ANSWERED)
