"""Whose folder is this: every command that writes one claims it first, so no run overwrites another.

* A new or empty folder is claimed by `run.json` (kind, config hash, version, start), then gets `config.yaml`.
* Where only a part of the config makes a run this run (`identity`), the rest may change from call to call;
  `config.yaml` is then the newest call's.
* A folder claimed by the same kind and config is resumed. Any other content is an `InputError`; nothing is touched.
* A claim that led to nothing but bad input is given back (`released_on_bad_input`): the corrected command may have the
  folder.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from configs import __version__
from configs.errors import DISK_FULL, InputError, StorageError, UsageError
from configs.loader import content_hash, save_resolved

_CLAIM = "run.json"
_CONFIG = "config.yaml"
_PARTIAL = f".{_CLAIM}.tmp"
_HINT = "choose another --out"


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path
    kind: str
    config_hash: str
    resumed: bool
    """The folder was claimed before by the same kind and config: go on where it stopped."""


def open_run(out: Path, kind: str, config: BaseModel, identity: BaseModel | None = None) -> RunFolder:
    """Claim `out`, or resume it. `identity`: what of `config` decides whose folder it is; None: all of it.

    Raises InputError when it is another run's, not a folder, or not writable, StorageError when the disk is full.
    """
    digest = content_hash(config if identity is None else identity)
    try:
        out.mkdir(parents=True, exist_ok=True)
        resumed = _is_mine(out, kind, digest)
        if not resumed:
            _write_claim(out, {"schema": 1, "kind": kind, "config": digest, "version": __version__, "started": _now()})
        if identity is not None or not (out / _CONFIG).exists():
            save_resolved(config, out / _CONFIG)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{out}: not a folder: {_HINT}") from error
    except PermissionError as error:
        raise InputError(f"{out}: no permission to write there: {_HINT}") from error
    except OSError as error:
        if error.errno in DISK_FULL:
            raise StorageError(f"{out}: {error.strerror}; what was written before is kept") from error
        raise InputError(f"{out}: {error.strerror or error}: {_HINT}") from error
    return RunFolder(out, kind, digest, resumed)


@contextmanager
def released_on_bad_input(folder: RunFolder, *made: str) -> Iterator[None]:
    """A UsageError from the block, or a path that cannot be used, gives a new folder back.

    Not so a folder that holds more than the claim and `made`: files, and folders that are empty, that stand there
    before anything is worth keeping.
    """
    try:
        yield
    except (UsageError, OSError):
        if not folder.resumed:
            with suppress(OSError):
                _give_back(folder.path, {_CLAIM, _CONFIG, *made})
        raise


def _give_back(out: Path, ours: Collection[str]) -> None:
    entries = sorted(out.iterdir(), key=lambda entry: entry.name == _CLAIM)  # last: what is left of it is still claimed
    if any(entry.name not in ours or (entry.is_dir() and any(entry.iterdir())) for entry in entries):
        return
    for entry in entries:
        if entry.is_dir():
            entry.rmdir()
        else:
            entry.unlink()
    out.rmdir()


def _is_mine(out: Path, kind: str, digest: str) -> bool:
    if not (out / _CLAIM).exists():
        if any(entry.name != _PARTIAL for entry in out.iterdir()):
            raise InputError(f"{out}: holds files that are not a run: {_HINT}")
        return False
    claim = _read_claim(out / _CLAIM)
    if (claim["kind"], claim["config"]) != (kind, digest):
        raise InputError(f"{out}: holds another run (kind {claim['kind']}, config {claim['config']}): {_HINT}")
    return True


def _read_claim(path: Path) -> dict[str, Any]:
    try:
        claim = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {_HINT}") from error
    if not isinstance(claim, dict) or not {"kind", "config"} <= claim.keys():
        raise InputError(f"{path}: names no kind and config: {_HINT}")
    return claim


def _write_claim(out: Path, claim: dict[str, Any]) -> None:
    (out / _PARTIAL).write_text(json.dumps(claim, indent=1) + "\n", encoding="utf-8")
    (out / _PARTIAL).replace(out / _CLAIM)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
