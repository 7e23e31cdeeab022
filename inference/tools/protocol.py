"""What the loop asks of a tool.

* `call` gets arguments that fit `spec.parameters` and returns one `ToolResult`; with `is_error` it is a plain message
  about a failure of this call (no such page, bad address) that the model may act on.
* A server that fails after the tool's own retries is `ToolUnavailable`, and so is whatever else a tool raises; the loop
  tells the model in a plain message and marks the result: an episode that is not right after it counts as errored. So
  nothing that a call asks for may raise. A limit that it meets is `ContextOverflow`, told as a failed call.
* Several calls may run at once, of one turn and of many episodes: a tool keeps no state of a call.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from inference.llm.protocol import ToolSpec


@dataclass(frozen=True, slots=True)
class ToolResult:
    text: str
    """What the model is shown."""
    is_error: bool = False
    """The call failed. The text says how; it is never evidence."""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """One result. Raises ToolUnavailable, ContextOverflow."""
        ...
