"""Keys of servers: where they are named, read and kept out of what is written.

* A config holds the *name* of an environment variable (`EnvName`), in capitals, so that a key put there by mistake is
  refused; the mistaken value is not repeated.
* The address of a server (`Address`) carries no name and password: it stands in saved configs and in errors.
* `read_key` raises `ConfigError` for a key that no header can carry, naming the variable, never the value.
* `hide` cuts a key out of a text that came from outside. Values of fewer than `SHORTEST` characters are the
  placeholders local servers take (EMPTY, none); they are no secrets, and may be words of the text.
"""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from configs.errors import ConfigError

SHORTEST = 6
_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("should be the name of an environment variable, in capitals; a key itself never stands here")
    return name


def _address(url: str) -> str:
    try:
        urlsplit(url).port  # noqa: B018 (reading it is what checks it)
    except ValueError as error:
        raise ValueError(f"is no address ({error})") from error
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ValueError("should hold no name and password; a key stands in the environment variable that is named")
    return url


EnvName = Annotated[str, AfterValidator(_checked)]
Address = Annotated[str, AfterValidator(_address)]


def read_key(environ: Mapping[str, str], name: str) -> str | None:
    """The key in the variable `name`, spaces around it aside; None where it is not set or empty. Raises ConfigError."""
    key = environ.get(name, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigError(f"{name}: holds a space, a line break or a letter that no key has; set it to the key alone")
    return key or None


def hide(text: str, key: str | None) -> str:
    """The text with every occurrence of the key replaced by ***."""
    return text.replace(key, "***") if key is not None and len(key) >= SHORTEST else text
