"""Text files that are whole or absent: a reader, a full disk or a crash never meets half of one."""

from pathlib import Path

from configs.errors import StorageError


def write_whole(path: Path, text: str) -> None:
    """Replace `path` in one piece; lone surrogates become question marks. Raises StorageError."""
    part = path.with_name(f".{path.name}.tmp")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}; what was written before is kept") from error
