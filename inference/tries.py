"""The outer loop: tries of one question, each from the bare question.

* A try that ends without a valid answer (turns, format or context spent) is followed by a new one, into which nothing
  is carried over; at most `max_retries` of them. An episode-wide limit (tokens, deadline) ends the episode at once.
* The last try must answer: its turns spent, it is asked once for the answer (no tools). Where that states no valid
  answer, or where an episode-wide limit leaves no turn for it, the answer is the intermediate one whose evidence holds
  best: of every boxed value stated on the way, in any try, the one with the highest share of supported links; of equals
  the later. Answers got either way are marked `forced`, and the episode keeps the limit as its stop.
* `LLMError` ends the episode `errored`, with the error's line and never with an answer; its journal stays, so a rerun
  goes on from the step that failed.

Source: MiroThinker-1.7, the episode loop around the step loop.
"""

from collections.abc import Sequence
from dataclasses import replace

from configs.errors import LLMError
from inference.answer import read_answer
from inference.evidence import check, passages, supported_share
from inference.react import Conversation, ReAct
from inference.types import Answer, Episode, EpisodeKey, Node, StopReason, Trajectory

_OF_THE_EPISODE = frozenset({StopReason.TOKEN_BUDGET, StopReason.DEADLINE})


async def run_tries(
    react: ReAct, key: EpisodeKey, opening: Sequence[Node], *, max_retries: int, final_prompt: str | None
) -> Episode:
    """The episode. `opening` is what every try starts from. Raises StorageError."""
    tries: list[Trajectory] = []
    for attempt in range(max_retries + 1):
        talk = Conversation(attempt, list(opening))
        try:
            stop = await react.run(talk)
            last = attempt == max_retries or stop in _OF_THE_EPISODE
            if last and stop is not StopReason.ANSWERED:
                talk.answer = await _last_word(react, talk, tries, stop, final_prompt)
        except LLMError as error:
            tries.append(talk.trajectory(StopReason.ERRORED))
            return _episode(react, key, tries, error=" ".join(str(error).split()))
        tries.append(talk.trajectory(stop))
        if last or stop is StopReason.ANSWERED:
            break
    return _episode(react, key, tries)


async def _last_word(
    react: ReAct, talk: Conversation, earlier: Sequence[Trajectory], stop: StopReason, final_prompt: str | None
) -> Answer | None:
    if final_prompt is not None and stop not in _OF_THE_EPISODE:
        answer = await react.force(talk, final_prompt)
        if answer is not None:
            return answer
    return best_intermediate([*earlier, talk.trajectory(stop)])


def best_intermediate(tries: Sequence[Trajectory]) -> Answer | None:
    """Of all valid boxed values stated on the way, the one whose evidence holds best; of equals the last. Pure."""
    best: tuple[tuple[float, int], Answer] | None = None
    for trajectory in tries:
        observed = passages(trajectory.nodes)
        for step in trajectory.steps:
            answer = read_answer(trajectory.nodes[step.completion].text)
            if isinstance(answer, str):
                continue
            checks = check(answer.evidence, [p for p in observed if p.node < step.completion])
            rank = (supported_share(checks), sum(c.supported for c in checks))
            if best is None or rank >= best[0]:
                best = rank, answer
    return None if best is None else replace(best[1], forced=True)


def _episode(react: ReAct, key: EpisodeKey, tries: Sequence[Trajectory], error: str | None = None) -> Episode:
    last = tries[-1]
    return Episode(
        key,
        tuple(tries),
        last.stop,
        None if error else last.answer,
        usage=react.usage,
        seconds=react.seconds,
        error=error,
    )
