"""Pydantic's errors as one plain line: which layer, which dotted key, what is wrong, which key was meant.

* Unknown keys come first: a misspelt key also shows as a missing one, and the spelling is what the user can mend.
* The closest known key is looked for among the keys of the same mapping, then in the whole schema. Of a union only the
  members whose literal fields (`kind: ...`) agree with the data count.
* The value of an unknown key, or of a key that may hold a secret, is never repeated.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Path = tuple[str | int, ...]
Sources = dict[Path, str]
"""Path of each key -> the layer that set it last."""

_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)


def one_line(error: ValidationError, schema: type[BaseModel], data: Any, sources: Sources, files: str) -> str:
    """The first error worth mending, and how many more there are. `files` names what was read."""
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    first, path = details[0], _data_path(details[0], data)
    source = _source(path, sources) or files or "config"
    if first["type"] == "missing":
        keys = _missing_beside(path, details, data)
        return f"{source}: {_required(keys)}{_more(len(details) - len(keys))}"
    key = _dotted(path)
    if first["type"] == "extra_forbidden":
        what = f"unknown key {key}{_closest(schema, data, path)}"
    else:
        what = _complaint(first, key)
    named = not key or first["type"] == "extra_forbidden" or source == f"override {key}"
    return f"{source}: {what if named else f'{key}: {what}'}{_more(len(details) - 1)}"


def undecoded(data: Any, path: Path = ()) -> Path | None:
    """The place of a text that is no Unicode: bytes of the command line, or of a file's name, that are not UTF-8."""
    if isinstance(data, str):
        return None if data.isascii() or data == data.encode("utf-8", "ignore").decode() else path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found = undecoded(key, (*path, "a key")) or undecoded(value, (*path, key))
        if found is not None:
            return found
    return None


def kind_of(value: Any) -> str:
    """What a YAML user calls it."""
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")


def _missing_beside(path: Path, details: Sequence[ErrorDetails], data: Any) -> list[str]:
    """The keys that lack in the same mapping, `path` among them."""
    lacking = [_data_path(detail, data) for detail in details if detail["type"] == "missing"]
    return [_dotted(other) for other in dict.fromkeys(lacking) if other[:-1] == path[:-1]]


def _required(keys: Sequence[str]) -> str:
    said = "this key is required" if len(keys) == 1 else "these keys are required"
    return f"{', '.join(keys)}: {said}, in a file or as {keys[0]}=VALUE"


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def _data_path(detail: ErrorDetails, data: Any) -> Path:
    """The error's place in the data: pydantic's location also names union members, which the user never wrote."""
    path: Path = ()
    for part in detail["loc"]:
        if _holds(data, part):
            data = data[part]
        elif detail["type"] != "missing" or part != detail["loc"][-1]:
            continue
        path = (*path, part)
    return path


def _holds(data: Any, part: str | int) -> bool:
    return part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))


def _dotted(path: Path) -> str:
    return ".".join(str(part) for part in path)


def _source(path: Path, sources: Sources) -> str:
    for length in range(len(path), 0, -1):
        if path[:length] in sources:
            return sources[path[:length]]
    return ""


def _complaint(detail: ErrorDetails, key: str) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "union_tag_not_found":
        return f"its {context['discriminator']} is required"
    if detail["type"] == "union_tag_invalid":
        return f"its {context['discriminator']} should be one of {context['expected_tags']}, found {context['tag']!r}"
    message = " ".join(detail["msg"].removeprefix("Value error, ").split())
    for theirs, ours in (("Input should", "should"), ("a valid array", "a list"), ("an object", "a mapping")):
        message = message.replace(theirs, ours, 1)
    return message if detail["type"] == "value_error" else message + _found(detail["input"], key)


def _found(value: Any, key: str) -> str:
    if isinstance(value, (dict, list)) or value is None or _SECRET.search(key):
        return f", found {kind_of(value)}"
    text = repr(value)
    return f", found {text if len(text) <= 60 else text[:57] + '...'}"


def _closest(schema: type[BaseModel], data: Any, path: Path) -> str:
    key, parent = str(path[-1]), path[:-1]
    siblings = _known_keys(schema, data, parent)
    everywhere = {dotted.rpartition(".")[2]: dotted for dotted in _all_keys(schema)}
    for candidates, cutoff in ((siblings, 0.6), (everywhere, 0.8), (siblings, 0.0)):
        match = get_close_matches(key, candidates, n=1, cutoff=cutoff)
        if match:
            meant = everywhere[match[0]] if candidates is everywhere else _dotted((*parent, match[0]))
            return f"; the closest known key is {meant}"
    return ""


def _known_keys(schema: type[BaseModel], data: Any, path: Sequence[str | int]) -> list[str]:
    annotations: list[Any] = [schema]
    for part in path:
        annotations = [inner for each in annotations for inner in _inner(each, part, data)]
        data = data[part]
    models = (member for each in annotations for member in _members(each) if _is_model(member))
    return [name for model in models if _agrees(model, data) for name in model.model_fields]


def _inner(annotation: Any, part: str | int, data: Any) -> Iterator[Any]:
    """What the element `part` of a value annotated so is annotated with."""
    for member in _members(annotation):
        arguments = get_args(member)
        if _is_model(member):
            if _agrees(member, data) and part in member.model_fields:
                yield member.model_fields[part].annotation
        elif isinstance(part, str) and len(arguments) == 2:
            yield arguments[1]
        elif isinstance(part, int) and arguments:
            yield arguments[part] if part < len(arguments) and ... not in arguments else arguments[0]


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union, through Annotated; any other annotation is its own only member."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for argument in get_args(annotation):
            yield from _members(argument)
    else:
        yield annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _agrees(model: type[BaseModel], data: Any) -> bool:
    """No literal field of the model contradicts the data."""
    if not isinstance(data, Mapping):
        return True
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is Literal and data.get(name, field.default) not in get_args(field.annotation):
            return False
    return True


def _all_keys(schema: type[BaseModel], prefix: str = "", above: Iterable[type[BaseModel]] = ()) -> Iterator[str]:
    """Every dotted key that leads through mappings only. Longer ones first, so that a short one wins a tie."""
    for name, field in schema.model_fields.items():
        for member in _members(field.annotation):
            if _is_model(member) and member not in above:
                yield from _all_keys(member, f"{prefix}{name}.", (*above, schema))
        yield f"{prefix}{name}"
