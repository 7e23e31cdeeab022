"""Persisted records: JSON lines `{"schema": 1, "kind": ..., "key": ..., "data": ...}`, one a line, append-only.

* What `append_record` returned from is read back equal by `read_records`, lone surrogates aside: they become U+FFFD.
* A torn last line (power cut, full disk) is dropped by readers and cut off by the next writer; it harms nothing else.
* Any other line that is no record of the asked type is an `InputError` naming file and line: none is skipped quietly.
* One writer a file. A failed write is `StorageError`; what stood in the file before stays readable.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from configs.errors import InputError, StorageError

T = TypeVar("T")

SCHEMA = 1


def append_record(path: Path, kind: str, key: str, obj: object, *, fsync: bool = False) -> int:
    """Append one record; returns the byte offset of its line. Raises StorageError."""
    return append_line(path, encode(kind, key, obj), fsync=fsync)


def read_records(path: Path, record: type[T], kind: str | None = None) -> Iterator[T]:
    """The `data` of every record (of `kind`, when given), oldest first. Raises InputError; a missing file is one."""
    adapter = _adapter(record)
    for where, _, envelope in read_envelopes(path):
        if kind is None or envelope["kind"] == kind:
            yield validate(adapter, envelope["data"], where)


def read_keys(path: Path, kind: str | None = None) -> set[str]:
    """The keys on record, without building the records; empty where there is no file yet."""
    if not path.exists():
        return set()
    return {str(e["key"]) for _, _, e in read_envelopes(path) if kind is None or e["kind"] == kind}


def read_envelopes(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """(file:line, byte offset of the line, envelope) of every committed line."""
    try:
        with path.open("rb") as lines:
            offset = 0
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return
                yield f"{path}:{number}", offset, _envelope(line, f"{path}:{number}")
                offset += len(line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def encode(kind: str, key: str, obj: object) -> bytes:
    """The line of one record, newline included."""
    head = json.dumps({"schema": SCHEMA, "kind": kind, "key": key}, ensure_ascii=False)
    adapter = _adapter(type(obj))
    try:
        data = adapter.dump_json(obj)
    except PydanticSerializationError:  # lone surrogates, which UTF-8 cannot hold
        text = json.dumps(adapter.dump_python(obj, mode="python"), ensure_ascii=False)
        data = without_surrogates(text).encode()
    line = without_surrogates(head[:-1]).encode() + b', "data": ' + data + b"}\n"
    for character in "\x85\u2028\u2029":  # legal in JSON, yet line ends to str.splitlines
        line = line.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return line


def decode(line: bytes, record: type[T], where: str) -> T:
    """The record of one line as `encode` wrote it. Raises InputError naming `where`."""
    return validate(_adapter(record), _envelope(line, where)["data"], where)


def validate(adapter: TypeAdapter[T], data: object, where: str) -> T:
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where}: not the expected record: {key}: {first['msg']}") from error


def without_surrogates(text: str) -> str:
    """The same text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean(value: Any) -> Any:
    """Plain JSON with the lone surrogates of its texts replaced, which no file and no request could carry."""
    match value:
        case str():
            return without_surrogates(value)
        case dict():
            return {clean(key): clean(item) for key, item in value.items()}
        case list():
            return [clean(item) for item in value]
        case _:
            return value


def append_line(path: Path, line: bytes, *, fsync: bool = False) -> int:
    """Append a whole line (newline included), cutting off a torn one first; returns its offset. Raises StorageError."""
    try:
        with path.open("ab+") as file:
            start = _committed_end(file.fileno())
            if start != os.fstat(file.fileno()).st_size:
                file.truncate(start)
            file.write(line)
            file.flush()
            if fsync:
                os.fsync(file.fileno())
            return start
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def _committed_end(descriptor: int) -> int:
    """Byte offset just after the last newline."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _envelope(line: bytes, where: str) -> dict[str, Any]:
    try:
        envelope = json.loads(line)
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not a JSON line: not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not a JSON line: {error}") from error
    if not isinstance(envelope, dict) or not {"schema", "kind", "key", "data"} <= envelope.keys():
        raise InputError(f"{where}: not a record (schema, kind, key, data)")
    if envelope["schema"] != SCHEMA:
        raise InputError(f"{where}: schema {envelope['schema']!r}, this version reads {SCHEMA}")
    return envelope


def _adapter(record: type[T]) -> TypeAdapter[T]:
    return cast(TypeAdapter[T], _built(cast(Any, record)))


@cache
def _built(record: Any) -> TypeAdapter[Any]:
    return TypeAdapter(record)
