"""The rules an episode has to pass before anybody is trained to do the same. Pure: no judge is asked, no file read.

* Each rule is one function with a code; the first rule broken, in the order of `SURFACE`, is the reason. Correctness is
  not among them (`sft_set` and `pairs` decide it): being right does not excuse bad form, four of nine degenerate runs
  of a public log have the right answer.
* `surface` rules hold for both sides of a preference pair. `evidence_fails` asks in addition that every link of the
  chain the final turn states quotes an observation of that try, from the page it names.
* A turn the loop had to mend is not clean: the text would teach the mistake.

    errored            infrastructure failed
    not_answered       no valid final answer of its own accord (a limit, a format stop, a forced answer)
    retried            more than one try: the first ones failed
    truncated          a turn was cut at its limit
    malformed          a turn held a call that could not be read or executed, or had to be repaired
    forged_observation the model wrote a tool response itself
    unbalanced_tags    a thought or call is opened or closed without its other half
    unpaired           a call without exactly one result, in order
    no_tool_use        an answer without a single call
    ends_on_failure    the last call before the answer failed
    repeated_call      the same call a third time
    looping            the same eight words again and again in one turn
    foreign_script     letters of a script that neither the question nor any observation holds
    open_final_turn    the final turn states no single boxed answer, or an over-long one
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator

from inference.evidence import check, passages
from inference.types import Episode, Finish, Node, Role, StopReason

NGRAM, NGRAM_TIMES = 8, 4
SAME_CALL_TIMES = 3
ANSWER_CHARS = 300

_OBSERVATION = re.compile(r"</?tool_response>")


def surface_fault(episode: Episode) -> str | None:
    """Code of the first surface rule that `episode` breaks, or None."""
    return next((code for code, broken in SURFACE if broken(episode)), None)


def evidence_fault(episode: Episode) -> tuple[str, tuple[str, ...]] | None:
    """(`no_evidence` or `evidence_fails`, the links that fail), or None when every link of the chain is borne out."""
    if episode.answer is None or not episode.answer.evidence:
        return "no_evidence", ()
    checks = check(episode.answer.evidence, passages(episode.tries[-1].nodes))
    failing = tuple(f"{c.status}: {c.link.claim} | {c.link.quote} | {c.link.source}" for c in checks if not c.supported)
    return ("evidence_fails", failing) if failing else None


def _turns(episode: Episode) -> Iterator[Node]:
    for attempt in episode.tries:
        for step in attempt.steps:
            yield attempt.nodes[step.completion]


# -- rules ----------------------------------------------------------------------------------------------------------


def _errored(episode: Episode) -> bool:
    return episode.stop is StopReason.ERRORED


def _not_answered(episode: Episode) -> bool:
    return episode.stop is not StopReason.ANSWERED or episode.answer is None or episode.answer.forced


def _retried(episode: Episode) -> bool:
    return len(episode.tries) != 1


def _truncated(episode: Episode) -> bool:
    return any(step.finish is Finish.LENGTH for attempt in episode.tries for step in attempt.steps)


def _malformed(episode: Episode) -> bool:
    steps = (step for attempt in episode.tries for step in attempt.steps)
    return any(s.malformed for s in steps) or any(c.repaired for node in _turns(episode) for c in node.calls)


def _forged_observation(episode: Episode) -> bool:
    return any(_OBSERVATION.search(node.text) for node in _turns(episode))


def _unbalanced_tags(episode: Episode) -> bool:
    return any(
        node.text.count(f"<{tag}>") != node.text.count(f"</{tag}>") or node.text.count("<think>") > 1
        for node in _turns(episode)
        for tag in ("think", "tool_call")
    )


def _unpaired(episode: Episode) -> bool:
    for attempt in episode.tries:
        for step in attempt.steps:
            results = [attempt.nodes[i].call_id for i in step.results]
            if results != [call.id for call in attempt.nodes[step.completion].calls]:
                return True
    return False


def _no_tool_use(episode: Episode) -> bool:
    return not any(node.calls for node in _turns(episode))


def _ends_on_failure(episode: Episode) -> bool:
    results = [node for node in episode.tries[-1].nodes if node.role is Role.TOOL]
    return bool(results) and results[-1].is_error


def _repeated_call(episode: Episode) -> bool:
    made = Counter(
        (call.name, json.dumps(call.arguments, sort_keys=True)) for node in _turns(episode) for call in node.calls
    )
    return any(times >= SAME_CALL_TIMES for times in made.values())


def _looping(episode: Episode) -> bool:
    for node in _turns(episode):
        words = node.text.split()
        grams = Counter(tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1))
        if any(times >= NGRAM_TIMES for times in grams.values()):
            return True
    return False


def _foreign_script(episode: Episode) -> bool:
    for attempt in episode.tries:
        given = {s for node in attempt.nodes if node.role is not Role.ASSISTANT for s in _scripts(node.text)}
        if any(_scripts(attempt.nodes[step.completion].text) - given for step in attempt.steps):
            return True
    return False


def _scripts(text: str) -> set[str]:
    """First word of the Unicode name of each letter: LATIN, CYRILLIC, CJK ..."""
    if text.isascii():
        return {"LATIN"}
    return {"LATIN"} | {unicodedata.name(c, "?").split(" ")[0] for c in set(text) if c.isalpha() and not c.isascii()}


def _open_final_turn(episode: Episode) -> bool:
    last = episode.tries[-1]
    text = last.nodes[last.steps[-1].completion].text if last.steps else ""
    too_long = episode.answer is not None and len(episode.answer.text) > ANSWER_CHARS
    return text.count("\\boxed{") != 1 or too_long


SURFACE: tuple[tuple[str, Callable[[Episode], bool]], ...] = (
    ("errored", _errored),
    ("not_answered", _not_answered),
    ("retried", _retried),
    ("truncated", _truncated),
    ("malformed", _malformed),
    ("forged_observation", _forged_observation),
    ("unbalanced_tags", _unbalanced_tags),
    ("unpaired", _unpaired),
    ("no_tool_use", _no_tool_use),
    ("ends_on_failure", _ends_on_failure),
    ("repeated_call", _repeated_call),
    ("looping", _looping),
    ("foreign_script", _foreign_script),
    ("open_final_turn", _open_final_turn),
)
"""(code, whether an episode breaks it), in the order they are checked."""
