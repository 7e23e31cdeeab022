"""The mid-training set: one turn to write, in one context, and loss on that turn alone.

* *Plans* (`plan/...`): the bare question, and the turn that lays out the steps and makes the first call.
* *Steps* (`step/...`): step k of a recorded trajectory rewritten. The context is the very prompt step k was sampled in,
  view forms included; the target is what an expert writes there (`sculptor`), straight, whatever stood there before.
* A target states nothing that its context has not observed, holds exactly one call or one final answer, and answers
  right: a final turn whose answer is not gold is turned down.
* The same (episodes, problems, config) gives the same rows in the same order; ids are unique.

    unknown_question   an episode whose question is not among the problems
    held_out           a question that is kept for evaluation
    no_tree            a question without a reasoning tree
    stuck              no expert turn follows from what was observed
    early_answer       the rewritten turn answers, and not with gold
    unseen             the context does not show what the turn would quote: the placeholder stands there, or the view
                       cut it off
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from configs.schema import Config
from data_synthesis.ledger import Rejection
from data_synthesis.sculptor import SCRAPE, Observation, next_turn
from data_synthesis.splits import HELDOUT
from data_synthesis.teacher import Stuck, Turn, render_turn
from data_synthesis.tree import Variable, from_json
from inference.answer import last_boxed
from inference.llm.render import ChatMLRenderer
from inference.types import Episode, Node, Role, Step, Trajectory, ViewItem
from rollout_env.judge import match
from rollout_env.problem import Problem

KIND = "midtrain"
REASONS = ("unknown_question", "held_out", "no_tree", "stuck", "early_answer", "unseen")


class MidtrainConfig(Config):
    plans: int = Field(default=1, ge=0)
    """Differently worded plans a question."""
    steps: int | None = Field(default=4, ge=0)
    """Steps rewritten of each trajectory, drawn at random. None: all."""
    seed: int = 0
    """Wording, and which steps."""
    tokenizer: Path | None = None
    """The tokenizer.json in whose tokens views were cut. None: of an observation cut to n tokens the first n bytes
    count as shown, since a token is at least one."""


@dataclass(frozen=True, slots=True)
class MidRow:
    """What `training` reads as a target."""

    id: str
    prompt: tuple[Node, ...]
    target: str
    limits: tuple[int | None, ...]
    """View form of each prompt node, as in `ViewItem.limit`."""
    weight: float = 1.0


def plan_rows(
    problems: Iterable[Problem], opening: tuple[Node, ...], config: MidtrainConfig
) -> Iterator[MidRow | Rejection]:
    """Plans for `problems`; `opening` is what stands before the question in the agent's conversations."""
    for problem in problems:
        name = problem.question.id
        tree = _tree(problem)
        if isinstance(tree, str):
            yield Rejection(f"plan/{name}", tree)
            continue
        prompt = (*opening, Node(Role.USER, problem.question.text))
        written: set[str] = set()
        for number in range(config.plans):
            row_id = f"plan/{name}/{number}"
            target = _target(problem, tree, (), f"{config.seed}/{row_id}")
            if isinstance(target, str) and target not in written:
                written.add(target)
                yield MidRow(row_id, prompt, target, (None,) * len(prompt))
            elif isinstance(target, _Fault):
                yield Rejection(row_id, target.reason, {"question": problem.question.text}, target.evidence)


def step_rows(
    episodes: Iterable[Episode], problems: Mapping[str, Problem], config: MidtrainConfig
) -> Iterator[MidRow | Rejection]:
    """Rewritten steps of the last try of each episode whose question is among `problems`. Raises InputError."""
    shown = _first_bytes if config.tokenizer is None else ChatMLRenderer(config.tokenizer).shown
    for episode in episodes:
        problem = problems.get(episode.key.question_id)
        if problem is None:
            yield Rejection(f"step/{episode.key}", "unknown_question")
            continue
        tree = _tree(problem)
        if isinstance(tree, str):
            yield Rejection(f"step/{episode.key}", tree)
            continue
        attempt = episode.tries[-1] if episode.tries else None
        for number in _chosen(episode, config) if attempt else ():
            assert attempt is not None
            row_id = f"step/{episode.key}/{number}"
            target = _rewritten(attempt, number, problem, tree, f"{config.seed}/{row_id}", shown)
            yield _step_row(row_id, attempt, attempt.steps[number], problem, target)


def opening_of(episode: Episode) -> tuple[Node, ...]:
    """The nodes that stand before the question: the system prompt, if there is one."""
    return tuple(node for node in episode.tries[0].nodes[:1] if node.role is Role.SYSTEM)


Shown = Callable[[Node, int | None], str]
"""A node's text in a view form."""


@dataclass(frozen=True, slots=True)
class _Fault:
    reason: str
    evidence: tuple[str, ...] = ()


def _chosen(episode: Episode, config: MidtrainConfig) -> list[int]:
    """Numbers of the steps to rewrite; the first one is the plan's business."""
    later = list(range(1, len(episode.tries[-1].steps)))
    if config.steps is None or len(later) <= config.steps:
        return later
    rng = random.Random(f"steps/{config.seed}/{episode.key}")
    return sorted(rng.sample(later, config.steps))


def _rewritten(
    attempt: Trajectory, number: int, problem: Problem, tree: Variable, seed: str, shown: Shown
) -> str | _Fault:
    """What an expert writes in place of step `number`, or why that is no target."""
    seen = tuple(observations(attempt, attempt.steps[:number]))
    target = _target(problem, tree, seen, seed)
    if isinstance(target, str) and (hidden := _hidden_quote(target, attempt, attempt.steps[number].view, shown)):
        return _Fault("unseen", (hidden,))
    return target


def _step_row(
    row_id: str, attempt: Trajectory, step: Step, problem: Problem, target: str | _Fault
) -> MidRow | Rejection:
    if isinstance(target, _Fault):
        found = {"question": problem.question.text, "replaced": attempt.nodes[step.completion].text}
        return Rejection(row_id, target.reason, found, target.evidence)
    prompt = tuple(attempt.nodes[item.node] for item in step.view)
    return MidRow(row_id, prompt, target, tuple(item.limit for item in step.view))


def observations(attempt: Trajectory, steps: Iterable[Step]) -> Iterator[Observation]:
    """The calls of `steps` and what came of each, in order."""
    for step in steps:
        calls = {call.id: call for call in attempt.nodes[step.completion].calls}
        for index in step.results:
            node = attempt.nodes[index]
            call = calls.get(node.call_id or "")
            if call is not None:
                wanted = call.arguments.get("url" if call.name == SCRAPE else "q", "")
                info = str(call.arguments.get("info_to_extract", ""))
                yield Observation(call.name, str(wanted), node.text, node.is_error, info)


def _target(problem: Problem, tree: Variable, seen: tuple[Observation, ...], seed: str) -> str | _Fault:
    """The text of the expert's turn, or why there is none."""
    try:
        turn: Turn = next_turn(tree, seen, hashlib.sha256(seed.encode()).hexdigest())
    except Stuck as stuck:
        return _Fault("stuck", (str(stuck),))
    if turn.tool is None:
        answer = last_boxed(turn.answer or "") or ""
        if match(answer, problem.gold) is None:
            return _Fault("early_answer", (f"answers {answer!r}",))
    return render_turn(turn)


def _first_bytes(node: Node, limit: int | None) -> str:
    """What of the node is shown for certain, whatever the tokens: one is a byte or more."""
    if limit is None:
        return node.text
    return node.text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _hidden_quote(target: str, attempt: Trajectory, view: tuple[ViewItem, ...], shown: Shown) -> str | None:
    """A sentence the target quotes that its context does not show."""
    context = "\n".join(shown(attempt.nodes[item.node], item.limit) for item in view)
    quoted = target.split('"')[1::2] if "<tool_call>" not in target else target.split("<tool_call>")[0].split('"')[1::2]
    return next((quote for quote in quoted if quote not in context), None)


def _tree(problem: Problem) -> Variable | str:
    """The reasoning tree, or the reason there is none to use."""
    if problem.provenance.split == HELDOUT:
        return "held_out"
    tree = problem.provenance.tree
    return from_json(tree) if isinstance(tree, dict) and "edges" in tree else "no_tree"
