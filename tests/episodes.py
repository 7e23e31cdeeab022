"""Small hand-made episodes for tests: one question, calls and observations as given."""

from inference.types import (
    Answer,
    Episode,
    EpisodeKey,
    Evidence,
    Node,
    Question,
    Role,
    Step,
    StopReason,
    ToolCall,
    Trajectory,
    ViewItem,
)
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance

PAGE = "https://cities.example/Cities_of_Norland"
SENTENCE = "The capital of Norland is Vesk."
HITS = f"[1] Cities of Norland | {PAGE}\n{SENTENCE}"
CLAIM = Evidence("Norland capital Vesk", SENTENCE, PAGE)


def call_turn(number, query="capital Norland", thought="Search.", tool="google_search", repaired=None):
    key = "url" if tool == "scrape_and_extract_info" else "q"
    arguments = {key: query} | ({"info_to_extract": "capital"} if key == "url" else {})
    text = f'<think>{thought}</think>\n<tool_call>\n{{"name": "{tool}"}}\n</tool_call>'
    return Node(Role.ASSISTANT, text, calls=(ToolCall(f"call_{number}_0", tool, arguments, repaired),))


def final_turn(answer="Vesk", evidence=(CLAIM,), thought="So it is Vesk."):
    lines = [f'- {e.claim} | "{e.quote}" | {e.source}' for e in evidence]
    return Node(Role.ASSISTANT, f"<think>{thought}</think>\n" + "\n".join([*lines, rf"\boxed{{{answer}}}"]))


def episode(
    turns=None,
    answer="Vesk",
    evidence=(CLAIM,),
    *,
    question="q1",
    sample=0,
    stop=StopReason.ANSWERED,
    observation=HITS,
    failed=(),
    unavailable=(),
    malformed=(),
    text="What is the capital of Norland?",
):
    """Each of `turns` that calls is answered by `observation`; `failed` and the like number turns."""
    turns = [call_turn(0), final_turn(answer, evidence)] if turns is None else turns
    nodes = [Node(Role.SYSTEM, "Answer with evidence."), Node(Role.USER, text)]
    steps = []
    for number, turn in enumerate(turns):
        view = tuple(ViewItem(i) for i in range(len(nodes)))
        nodes.append(turn)
        completion = len(nodes) - 1
        for call in turn.calls:
            down = number in unavailable
            nodes.append(Node(Role.TOOL, observation, (), call.id, down or number in failed, down))
        results = tuple(range(completion + 1, len(nodes)))
        steps.append(Step(view, completion, results, malformed=number in malformed))
    stated = Answer(answer, tuple(evidence)) if answer is not None else None
    attempt = Trajectory(tuple(nodes), tuple(steps), stop, stated)
    return Episode(EpisodeKey(question, sample), (attempt,), stop, stated)


def problem(question="q1", answer="Vesk", split="train", tree=None):
    return Problem(
        Question(question, "What is the capital of Norland?"),
        Gold((answer,)),
        Provenance(ProblemKind.WEBHOP, world="w", split=split, tree=tree),
    )
