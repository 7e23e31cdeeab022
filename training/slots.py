"""Which slot a request takes: a pure table of the token ids whose keys and values each slot holds.

* A slot's row holds `length` ids, of which the first `filled` have their keys and values computed. A slot is busy from
  `take` to `release`; what it computed stays usable until another request overwrites it.
* A request reuses the longest prefix that any slot has computed, busy or not: positions once filled never change while
  they stand. At least the prompt's last token is computed anew, for its logits are needed.
* Where the slot that holds the prefix is free and at least half of it is prefix, the request takes that slot: this is a
  conversation that goes on, or one whose middle was rewritten. Otherwise it takes the free slot that was released
  longest ago and the prefix is copied, so a sibling conversation is not destroyed for a shared beginning.
* A prompt whose beginning is being computed right now by another request waits for it (`take` gives None), so the
  samples of one question compute their common prompt once.
* After `invalidate` nothing is reused: every `filled` is 0, those of busy slots too.

No torch here, no clock and no I/O.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WORTH_WAITING = 48


@dataclass(frozen=True, slots=True)
class Placement:
    slot: int
    source: int
    """Slot whose first `reused` positions the new one starts with; equal to `slot` where nothing is copied."""
    reused: int
    """Tokens of the prompt that need not be computed."""


class SlotTable:
    """The ids and states of `slots` slots of `context` tokens each."""

    def __init__(self, slots: int, context: int) -> None:
        self.context = context
        self.ids = np.zeros((slots, context), dtype=np.int64)
        self.length = np.zeros(slots, dtype=np.int64)
        self.filled = np.zeros(slots, dtype=np.int64)
        self.busy = np.zeros(slots, dtype=bool)
        self._released = np.zeros(slots, dtype=np.int64)
        self._clock = 0

    def take(self, prompt: NDArray[np.int64]) -> Placement | None:
        """Place a prompt of 1 to context - 1 ids; None while no slot is free or its beginning is being computed."""
        if self.busy.all():
            return None
        shared = self._shared_prefixes(prompt)
        computed = np.minimum(np.minimum(shared, self.filled), len(prompt) - 1)
        coming = np.where(self.busy, np.minimum(shared, self.length), 0)
        if coming.max() >= computed.max() + _WORTH_WAITING:
            return None
        placement = self._place(computed)
        self.ids[placement.slot, : len(prompt)] = prompt
        self.length[placement.slot] = len(prompt)
        self.filled[placement.slot] = placement.reused
        self.busy[placement.slot] = True
        return placement

    def append(self, slot: int, token: int) -> None:
        self.ids[slot, self.length[slot]] = token
        self.length[slot] += 1

    def release(self, slot: int) -> None:
        self._clock += 1
        self._released[slot] = self._clock
        self.busy[slot] = False

    def invalidate(self) -> None:
        self.filled[:] = 0

    def _shared_prefixes(self, prompt: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each slot, how many leading ids it shares with the prompt."""
        differs = self.ids[:, : len(prompt)] != prompt
        first: NDArray[np.int64] = np.where(differs.any(1), differs.argmax(1), len(prompt))
        return np.minimum(first, self.length)

    def _place(self, computed: NDArray[np.int64]) -> Placement:
        source = int((2 * computed + ~self.busy).argmax())
        reused = int(computed[source])
        if reused and not self.busy[source] and 2 * reused >= self.filled[source]:
            return Placement(source, source, reused)
        oldest = int(np.where(self.busy, self._clock + 1, self._released).argmin())
        return Placement(oldest, source if reused else oldest, reused)
