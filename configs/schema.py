"""The base of every config model.

* Frozen: a config never changes after it is loaded, so its hash names the run.
* Strict: `"3"` is no int and `0` is no bool. `load` validates in JSON mode, so what YAML can only write as a list or a
  string still fills a tuple, an enum or a path, and an int fills a float.
* An unknown key is an error.

A field that needs a secret holds the *name* of an environment variable (`api_key_env`), never the secret.
"""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Subclass it; put a docstring under each field (unit, and what None means)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
