"""Reading the calls of a turn: Hermes text calls and native ones, into the same requests.

    <tool_call>
    {"name": "google_search", "arguments": {"q": "..."}}
    </tool_call>

* Nothing inside `<think>` is ever a call; nothing after a `<tool_response>` that the model wrote itself is read.
* Strict JSON first: the object's own end ends the call, so a literal `</tool_call>` in a string is harmless. Else
  `json_repair`, and what was mended stands in `ToolCall.repaired`.
* Arguments must fit the tool's schema. A name that is not exact is repaired only when it differs from one tool alone by
  case, separators or a namespace prefix; never to a tool that is merely similar.
* Every readable call becomes one `Request`, runnable or with the `problem` the model is told. What could not be read as
  a call at all is told in `unreadable`.

Whether a turn was cut is the caller's business: calls of a cut turn are not read.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import json_repair

from inference.llm.protocol import ToolSpec
from inference.records import clean
from inference.types import ToolCall

FORM = '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'


_OPENING = re.compile("<tool_call>|<tool_response>")
_BOUNDARY = re.compile("</?tool_call>|<tool_response>")


@dataclass(frozen=True, slots=True)
class Request:
    call: ToolCall
    problem: str | None = None
    """Why it cannot be run, in words for the model. None: it can."""


@dataclass(frozen=True, slots=True)
class TurnCalls:
    requests: tuple[Request, ...] = ()
    """In the order of the turn; ids are `call_{step}_{place}`."""
    unreadable: tuple[str, ...] = ()
    """One message for each call markup in which no call could be read."""


@dataclass(frozen=True, slots=True)
class _Unreadable:
    why: str


def read_calls(text: str, native: Sequence[ToolCall], specs: Sequence[ToolSpec], step: int) -> TurnCalls:
    """The calls of an uncut turn. `native` are those the endpoint parsed; a text call equal to one is not repeated."""
    read: list[ToolCall] = list(native)
    unreadable: list[str] = []
    for item in _text_calls(outside_thoughts(text)):
        if isinstance(item, _Unreadable):
            unreadable.append(item.why)
        elif not any((item.name, item.arguments) == (call.name, call.arguments) for call in native):
            read.append(item)
    requests = (_request(replace(call, id=f"call_{step}_{i}"), specs) for i, call in enumerate(read))
    return TurnCalls(tuple(requests), tuple(unreadable))


def outside_thoughts(text: str) -> str:
    """The text without its thoughts. A thought whose opening tag is missing ends at the first `</think>`."""
    opened, closed = text.find("<think>"), text.find("</think>")
    if closed >= 0 and (opened < 0 or closed < opened):
        text = text[closed + len("</think>") :]
    return re.sub(r"<think>.*?(</think>|\Z)", "", text, flags=re.DOTALL)


def without_calls(text: str) -> str:
    """The text with its call markup removed: for endpoints that are sent the calls in a field of their own."""
    return re.sub(r"<tool_call>.*?(</tool_call>|\Z)", "", text, flags=re.DOTALL).rstrip()


def signature(spec: ToolSpec) -> str:
    """`name(q: string, num?: integer)`."""
    required = spec.parameters.get("required", ())
    fields = spec.parameters.get("properties", {})
    shown = (f"{name}{'' if name in required else '?'}: {_type_name(schema)}" for name, schema in fields.items())
    return f"{spec.name}({', '.join(shown)})"


def parse_arguments(raw: str) -> tuple[dict[str, Any], str | None] | None:
    """Arguments from their JSON text and what was mended ('' means none were given), or None."""
    if not raw.strip():
        return {}, None
    value, repaired = _loads(raw)
    if isinstance(value, str):
        value, repaired = _loads(value)[0], "arguments were a string"
    return (value, repaired) if isinstance(value, dict) else None


def _text_calls(text: str) -> Iterator[ToolCall | _Unreadable]:
    position = 0
    while match := _OPENING.search(text, position):
        if match.group() == "<tool_response>":
            return
        value, end = _decode_at(text, match.end())
        repaired = None
        if value is None:
            end = _block_end(text, match.end())
            value, repaired = _loads(text[match.end() : end])
        for payload in value if isinstance(value, list) and value else [value]:
            yield _call(payload, text[match.end() : end], repaired)
        position = end


def _decode_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at `start` and its end, or (None, start)."""
    while start < len(text) and text[start].isspace():
        start += 1
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return None, start
    return (value, end) if isinstance(value, dict | list) else (None, start)


def _block_end(text: str, start: int) -> int:
    match = _BOUNDARY.search(text, start)
    return match.start() if match else len(text)


def _loads(raw: str) -> tuple[Any, str | None]:
    """The value and what was mended; (None, None) where nothing can be read."""
    try:
        return json.loads(raw), None
    except ValueError as error:
        value = json_repair.loads(raw)
        return (value, f"JSON ({error})") if isinstance(value, dict | list) else (None, None)


def _call(payload: Any, raw: str, repaired: str | None) -> ToolCall | _Unreadable:
    if not isinstance(payload, dict):
        return _Unreadable(f"A tool call is not valid JSON ({_json_error(raw)}). Write it as:\n{FORM}")
    name = payload.get("name")
    if not isinstance(name, str) or not name.strip():
        return _Unreadable(f'A tool call has no "name". Write it as:\n{FORM}')
    given = payload.get("arguments", payload.get("parameters", {}))
    if isinstance(given, str):
        parsed = parse_arguments(given)
        if parsed is None:
            return _Unreadable(f'The "arguments" of a call of {name} are not a JSON object. Write it as:\n{FORM}')
        given, repaired = parsed[0], repaired or "arguments were a string"
    if not isinstance(given, dict):
        return _Unreadable(f'The "arguments" of a call of {name} are not a JSON object. Write it as:\n{FORM}')
    return ToolCall("", name, given, repaired)


def _json_error(raw: str) -> str:
    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return f"{error.msg} at character {error.pos}"
    return "not an object"


def _request(call: ToolCall, specs: Sequence[ToolSpec]) -> Request:
    spec = _resolve(call.name, specs)
    if spec is None:
        return Request(call, _unknown_tool(call.name, specs))
    notes = [call.repaired] if call.repaired else []
    if spec.name != call.name:
        notes.append(f"name {call.name!r}")
    arguments, dropped = _without_nulls(call.arguments, spec)
    if dropped:
        notes.append(f"dropped null {', '.join(dropped)}")
    call = replace(call, name=spec.name, arguments=clean(arguments), repaired="; ".join(notes) or None)
    return Request(call, _argument_problem(call.arguments, spec))


def _resolve(name: str, specs: Sequence[ToolSpec]) -> ToolSpec | None:
    for spec in specs:
        if spec.name == name:
            return spec
    for written in (name, re.split(r"\.|:|/|__", name)[-1]):
        same = [spec for spec in specs if _plain(spec.name) == _plain(written)]
        if len(same) == 1:
            return same[0]
    return None


def _plain(name: str) -> str:
    return re.sub(r"[\s._:/-]+", "", name).casefold()


def _unknown_tool(name: str, specs: Sequence[ToolSpec]) -> str:
    if len(specs) > 10:
        close = get_close_matches(name, [spec.name for spec in specs], n=5, cutoff=0.3)
        specs = [spec for spec in specs if spec.name in close] or specs[:10]
    known = "; ".join(signature(spec) for spec in specs)
    return f"There is no tool {name!r}. Tools: {known}" if known else f"There is no tool {name!r}: no tool is offered."


def _without_nulls(arguments: dict[str, Any], spec: ToolSpec) -> tuple[dict[str, Any], list[str]]:
    """Null stands for 'not given' unless the schema says that null is a value."""
    fields = spec.parameters.get("properties", {})
    dropped = [
        name for name, value in arguments.items() if value is None and not _fits(None, fields.get(name, {"type": []}))
    ]
    return {name: value for name, value in arguments.items() if name not in dropped}, dropped


def _argument_problem(arguments: dict[str, Any], spec: ToolSpec) -> str | None:
    fields = spec.parameters.get("properties", {})
    missing = [name for name in spec.parameters.get("required", ()) if name not in arguments]
    if missing:
        return f"The call lacks {', '.join(missing)}: {signature(spec)}"
    unknown = [name for name in arguments if name not in fields]
    if unknown and not spec.parameters.get("additionalProperties", False):
        return f"The call has an unknown argument {', '.join(unknown)}: {signature(spec)}"
    for name, value in arguments.items():
        schema = fields.get(name, {})
        if not _fits(value, schema):
            return f"Argument {name} must be {_type_name(schema)}, not {json.dumps(value)[:80]}: {signature(spec)}"
    return None


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """The part of JSON schema that tools use: type, enum and the type of items."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = schema.get("type")
    if kinds is None:
        return True
    names = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in names
    if not any(isinstance(value, _TYPES.get(name, (object,))) for name in names):
        return False
    return not isinstance(value, list) or all(_fits(item, schema.get("items", {})) for item in value)


def _type_name(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(json.dumps(value) for value in schema["enum"])
    kinds = schema.get("type", "any")
    return kinds if isinstance(kinds, str) else "|".join(kinds)
