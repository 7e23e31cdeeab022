r"""Reading a final turn: the boxed answer and the chain of evidence beside it.

    - claim | "quote" | source
    \boxed{answer}

* The answer is the last balanced `\boxed{...}` or `\fbox{...}` outside thoughts, whatever stands before it. Braces
  nest; `\{` and `\}` do not count. Where no box is balanced, the last opened one runs to the end of its line.
* A placeholder (`?`, `...`, `unknown`, `answer`, an empty box) is no answer; the reason says so.
* An evidence line that does not parse is left out: it can support nothing.
"""

import re

from inference.toolcall import outside_thoughts
from inference.types import Answer, Evidence

FORM = '- claim | "quote" | source\n\\boxed{answer}'

PLACEHOLDERS = frozenset({
    "", "unknown", "n/a", "not found", "not available", "answer", "your answer", "your answer here", "final answer",
    "the answer", "insufficient information", "cannot be determined", "tbd",
})  # fmt: skip

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{|\\boxed\s+(?P<bare>[^\s{}$\\]+)")
_LINE = re.compile(r"^\s*[-*•]\s*(?P<claim>[^|\n]+?)\s*\|\s*(?P<quote>.+?)\s*\|\s*(?P<source>[^\s|]+)\s*$")
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf)\s*\{([^{}]*)\}")
_ESCAPES = re.compile(r"\\([%$&#_{}])")
_QUOTES = {('"', '"'), ("“", "”"), ("'", "'"), ("«", "»"), ("„", "“")}


def read_answer(text: str) -> Answer | str:
    """The answer a turn states, or why it states none, in words for the model."""
    shown = outside_thoughts(text)
    value = last_boxed(shown)
    if value is None:
        return f"The turn neither calls a tool nor states an answer. A final turn ends with:\n{FORM}"
    if is_placeholder(value):
        return f"\\boxed{{{value}}} is a placeholder, not an answer. A final turn ends with:\n{FORM}"
    return Answer(value, read_evidence(shown))


def last_boxed(text: str) -> str | None:
    """The content of the last box, cleaned; None where there is none."""
    balanced, opened = None, None
    for match in _BOX.finditer(text):
        if match["bare"]:
            balanced = match["bare"]
            continue
        end = _closing_brace(text, match.end())
        if end is None:
            opened = text[match.end() :].split("\n", 1)[0]
        else:
            balanced = text[match.end() : end]
    found = balanced if balanced is not None else opened
    return None if found is None else _clean(found)


def read_evidence(text: str) -> tuple[Evidence, ...]:
    """The evidence lines, in order."""
    matches = (_LINE.match(line) for line in text.splitlines())
    return tuple(Evidence(m["claim"], _unquoted(m["quote"]), m["source"].strip("<>")) for m in matches if m)


def is_placeholder(value: str) -> bool:
    return value.casefold().strip(" .?…!<>[]()_-") in PLACEHOLDERS


def _closing_brace(text: str, start: int) -> int | None:
    """Index of the brace that closes one opened just before `start`."""
    depth, i = 1, start
    while i < len(text):
        if text[i] == "\\":
            i += 1
        elif text[i] in "{}":
            depth += 1 if text[i] == "{" else -1
            if depth == 0:
                return i
        i += 1
    return None


def _clean(value: str) -> str:
    value = " ".join(value.split())
    previous = None
    while previous != value:
        previous = value
        if (whole := _WRAPPER.fullmatch(value)) is not None:
            value = whole[1].strip()
    return _ESCAPES.sub(r"\1", value)


def _unquoted(quote: str) -> str:
    if len(quote) > 1 and (quote[0], quote[-1]) in _QUOTES:
        return quote[1:-1].strip()
    return quote
