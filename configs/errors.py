"""The one tree of errors.

    ProofhoundError
    ├── UsageError            exit 2: the user can mend it; one plain line says what, where and what to do
    │   ├── ConfigError       a config file, key, value or override
    │   ├── InputError        a file, folder, corpus, checkpoint or question that cannot be used
    │   └── MissingExtraError an optional part of the installation is absent
    ├── InfraError            nobody's answer: a machine, a network or a server failed; retried or shown, never scored
    │   ├── LLMError          the model endpoint failed, timed out or answered in a shape we cannot read
    │   ├── ToolUnavailable   a tool's server failed; the model is told, and an answer that is not right then is errored
    │   └── StorageError      a write failed (full disk, permission); what was committed stays readable
    ├── ContextOverflow       the next prompt does not fit the model's context; a limit, not a failure
    └── RunFailed             exit 1: the run itself came to a bad end that no retry mends

Add an error only where some caller must act differently on it. Every error is picklable: its arguments are
positional strings. Typed errors pass through unchanged; `boundary` turns any other exception into the type of the
part that failed, so `except Exception` stands here and nowhere else.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where no more can be written."""


class ProofhoundError(Exception):
    """Root of the tree. `str(error)` is one line fit for a terminal."""


class UsageError(ProofhoundError):
    """The user can mend it. The command line prints it and exits with 2."""


class ConfigError(UsageError):
    """A config file, key, value or override is wrong."""


class InputError(UsageError):
    """A file, folder, corpus, checkpoint or question cannot be used."""


class MissingExtraError(UsageError):
    """An optional part of the installation is absent."""


class InfraError(ProofhoundError):
    """A machine, network or server failed. Never an answer, a reward or a score."""


class LLMError(InfraError):
    """The model endpoint failed, timed out or answered in a shape we cannot read."""


class ToolUnavailable(InfraError):
    """A tool's server failed."""


class StorageError(InfraError):
    """A write failed; what was committed before it stays readable."""


class ContextOverflow(ProofhoundError):
    """The next prompt does not fit the model's context."""


class RunFailed(ProofhoundError):
    """The run came to an end that no retry mends. The command line exits with 1."""


@contextmanager
def boundary(kind: type[ProofhoundError], where: str) -> Iterator[None]:
    """Attribute whatever escapes the block to `kind`, naming `where`. Typed errors and cancellation pass through."""
    try:
        yield
    except ProofhoundError:
        raise
    except Exception as error:  # the one place: see the module's contract
        raise kind(f"{where}: {type(error).__name__}: {error}") from error
