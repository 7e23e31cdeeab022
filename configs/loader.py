"""The one loader: YAML files, environment and command line in, one strict frozen model out.

* A file `configs/...` that is not there is looked for among the packaged ones, so their names work in any folder.
* Layers are merged left to right: files, then `PROOFHOUND__A__B=value` from the environment, then `a.b=value`
  overrides (both values are YAML). Mappings merge deep; lists, and a mapping whose `kind` changes, are replaced whole.
* An unknown key, a wrong type, a missing file, a file that is no YAML mapping: `ConfigError`, one line that names the
  layer, the dotted key and, for an unknown key, the closest known one.
* The same model always has the same `content_hash`; `load(type(m), [saved])` after `save_resolved(m, saved)` equals m.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from configs import explain, yaml_text
from configs.errors import ConfigError
from configs.whole import write_whole

M = TypeVar("M", bound=BaseModel)

ENV_PREFIX = "PROOFHOUND__"
PACKAGED = Path(__file__).parent
"""Folder of the groups of YAML files: `agents/`, `demo/`..."""


def load(
    schema: type[M],
    files: Sequence[Path | str],
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> M:
    """The merged and validated config. Pass `environ={}` for a file that is not the command's own config."""
    data: dict[str, Any] = {}
    sources: explain.Sources = {}
    for name, layer in _layers(files, overrides, environ):
        data = _merge(data, layer, name, sources)
        if (place := explain.undecoded(layer)) is not None:
            raise ConfigError(f"{name}: {'.'.join(map(str, place))}: not UTF-8 text")
    try:
        return schema.model_validate_json(json.dumps(data))
    except ValidationError as error:
        named = ", ".join(map(str, files))
        raise ConfigError(explain.one_line(error, schema, data, sources, named)) from error


def resolve(group: str, name: Path | str) -> Path:
    """The packaged `configs/<group>/<name>.yaml`; a name with a folder or a suffix is taken as a path."""
    path = Path(name)
    if path.suffix or path.name != str(name):
        return path
    packaged = PACKAGED / group / f"{name}.yaml"
    if packaged.is_file():
        return packaged
    known = sorted(file.stem for file in packaged.parent.glob("*.yaml"))
    close = get_close_matches(str(name), known, n=1, cutoff=0)
    raise ConfigError(f"no config {name!r} in {group}" + (f"; the closest one is {close[0]!r}" if close else ""))


def save_resolved(model: BaseModel, path: Path) -> None:
    """Write every value, defaults included; the file is whole or absent. Raises StorageError."""
    write_whole(path, yaml_text.dump(model.model_dump(mode="json")))


def content_hash(model: BaseModel) -> str:
    """16 hex digits over every value, defaults included, independent of the order of the keys."""
    canonical = json.dumps(model.model_dump(mode="json"), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _layers(
    files: Sequence[Path | str], overrides: Sequence[str], environ: Mapping[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    layers = [(str(file), _read(Path(file))) for file in files]
    for variable in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        path = variable.removeprefix(ENV_PREFIX).lower().split("__")
        layers.append((variable, _nested(path, environ[variable], variable)))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"override {override!r}: expected key.path=value")
        layers.append((f"override {key}", _nested(key.split("."), text, f"override {key}")))
    return layers


def _read(path: Path) -> dict[str, Any]:
    try:
        text = _packaged(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    value = yaml_text.parse(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected key: value lines at the top, found {explain.kind_of(value)}")
    return value


def _packaged(path: Path) -> Path:
    packaged = PACKAGED.parent / path
    is_named_so = path.parts[:1] == (PACKAGED.name,)
    return packaged if is_named_so and not path.exists() and packaged.is_file() else path


def _nested(path: Sequence[str], text: str, where: str) -> dict[str, Any]:
    if not all(path):
        raise ConfigError(f"{where}: a part of the key is empty")
    value = yaml_text.parse(text, where)
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _merge(
    base: Mapping[str, Any], layer: Mapping[str, Any], name: str, sources: explain.Sources, path: explain.Path = ()
) -> dict[str, Any]:
    merged = dict(base)
    for key, value in layer.items():
        here = (*path, key)
        sources[here] = name
        if isinstance(value, dict):
            value = _merge(_continued(merged.get(key), value), value, name, sources, here)
        merged[key] = value
    return merged


def _continued(old: Any, new: Mapping[str, Any]) -> Mapping[str, Any]:
    same_kind = isinstance(old, dict) and new.get("kind", old.get("kind")) == old.get("kind")
    return old if same_kind else {}
