"""A call's arguments as a typed record, or the message that tells the model what is expected."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

A = TypeVar("A", bound="Arguments")


class Arguments(BaseModel):
    """Subclass it, a field an argument. Lenient where the meaning is plain: "3" is a number, null means absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


def read_arguments(schema: type[A], arguments: Mapping[str, Any], usage: str) -> A:
    """The record. Raises ValueError with a plain sentence that names the first fault and ends with `usage`."""
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return schema.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        faults = {"missing": f'"{name}" is missing', "extra_forbidden": f'there is no argument "{name}"'}
        fault = faults.get(first["type"], f'"{name}": {first["msg"]}')
        raise ValueError(f"Bad arguments: {fault}. Expected {usage}.") from error
