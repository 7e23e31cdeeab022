"""The shipped double of a language model: it says what its script says, and keeps what it was asked.

* From a sequence, the i-th call gets the i-th turn; a call beyond the last is `LLMError`.
* From a function, each call gets `function(prompt, sampling)`: use this one where episodes run at once.
* A turn is a text or a whole `Completion`; an exception in its place is raised.
"""

from collections.abc import Callable, Sequence

from configs.errors import LLMError
from inference.llm.protocol import Completion, Prompt, Sampling

Turn = str | Completion | BaseException
Script = Sequence[Turn] | Callable[[Prompt, Sampling], Turn]


class ScriptedLLM:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.asked: list[tuple[Prompt, Sampling]] = []
        """Every call, in order."""

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """The next turn of the script."""
        self.asked.append((prompt, sampling))
        turn = self._turn(prompt, sampling)
        if isinstance(turn, BaseException):
            raise turn
        return Completion(turn) if isinstance(turn, str) else turn

    def _turn(self, prompt: Prompt, sampling: Sampling) -> Turn:
        if callable(self._script):
            return self._script(prompt, sampling)
        if len(self.asked) > len(self._script):
            raise LLMError(f"the script has {len(self._script)} turns and was asked for one more")
        return self._script[len(self.asked) - 1]
