"""YAML as this project reads and writes it: the 1.2 core schema, no key twice.

* `1e-3` is a number, `yes`, `NO` and `12:30` are strings, dates stay strings; `1_000` is a number (an addition).
* Keys are strings, exactly as written (`on:` is "on"). Merge keys (`<<`) and language tags are not read.
* A key that stands twice in one mapping, a recursive alias and any syntax error are a `ConfigError` with the line.
* `parse(dump(value)) == value` for whatever JSON can express.
"""

import re
from typing import Any

import yaml

from configs.errors import ConfigError

_NULL = re.compile(r"(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"(?:[-+]?[0-9]+(?:_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_TAGS = (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT))  # the order decides: `3` is an int


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {None: [(f"tag:yaml.org,2002:{tag}", regexp) for tag, regexp in _TAGS]}


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key_node.start_mark)
        if key_node.value in result:
            raise yaml.MarkedYAMLError(problem=f"key {key_node.value} stands twice", problem_mark=key_node.start_mark)
        result[key_node.value] = loader.construct_object(value_node, deep=True)
    return result


def _sequence(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return [loader.construct_object(item, deep=True) for item in node.value]


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text: str = node.value
    return int(text, 0 if text[:2] in ("0x", "0o") else 10)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(re.sub(r"\.(?=[iInN])", "", node.value))


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # PyYAML folds these line breaks away unless they are escaped, which it does in double quotes only.
    style = '"' if re.search("[\x85\u2028\u2029]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)
for _tag, _construct in (("map", _mapping), ("seq", _sequence), ("int", _int), ("float", _float)):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _construct)


def parse(text: str, where: str) -> Any:
    """The value of one YAML document; None for an empty one. `where` names it in the ConfigError."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{where}{line}: {_one_line(error.problem or error.context or 'not YAML')}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not YAML: {_one_line(str(error))}") from error


def dump(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _one_line(text: str) -> str:
    return " ".join(text.split())
