"""The window view: which form of each node the next prompt shows. A pure function of the conversation.

* Every node stays, in order, so each call still has its result. Only observations (tool nodes) ever change form;
  thoughts, actions, the question and feedback are always whole.
* The observations of the last K *turns* are kept, cut to `cut` tokens each; older ones become the placeholder
  (`limit=0`). All results of a turn share its fate; a turn without observations takes no place in the window.
* With `slack` s > 0 the window breathes: it grows from K to K+s turns, then shrinks to K, so the prompt's prefix is
  rewritten every s+1 turns instead of every turn. s = 0 is the paper's window.

Source: MiroThinker-1.7, the context operator over the index set S_t(K).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inference.types import Node, Role, ViewItem

PLACEHOLDER = "Tool result is omitted to save tokens."
"""The text of a node whose limit is 0."""


@dataclass(frozen=True, slots=True)
class WindowView:
    window: int | None = 5
    """K, in turns with observations. None: every observation is kept. 0: none is."""
    cut: int | None = None
    """Tokens a kept observation is cut to. None: whole."""
    slack: int = 0
    """Turns the window may grow beyond K before it shrinks back to K."""

    def __call__(self, nodes: Sequence[Node]) -> tuple[ViewItem, ...]:
        """One item a node, in order."""
        blank_before = self._first_kept(nodes)
        return tuple(
            ViewItem(i, (0 if i < blank_before else self.cut) if node.role is Role.TOOL else None)
            for i, node in enumerate(nodes)
        )

    def _first_kept(self, nodes: Sequence[Node]) -> int:
        """Index of the first node of the oldest turn whose observations are kept."""
        starts = _turn_starts(nodes)
        if self.window is None:
            return 0
        excess = max(0, len(starts) - self.window)
        blanked = excess - excess % (self.slack + 1)
        return starts[blanked] if blanked < len(starts) else len(nodes)


def _turn_starts(nodes: Sequence[Node]) -> list[int]:
    """For each turn that has observations, the index of its first one."""
    starts: list[int] = []
    turn_open = False
    for i, node in enumerate(nodes):
        if node.role is Role.TOOL:
            if not turn_open:
                starts.append(i)
            turn_open = True
        elif node.role is Role.ASSISTANT:
            turn_open = False
    return starts
