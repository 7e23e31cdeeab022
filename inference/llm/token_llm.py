"""A language model over an engine that takes and gives token ids: the form every policy in training is sampled in.

* The prompt sent is `renderer.prompt_ids` of the nodes: sampled nodes stand in it as exactly the ids they were sampled
  as. The completion carries the engine's ids and log-probabilities untouched.
* Tools are described in the system node; calls are read from the text.
"""

from inference.llm.protocol import Completion, Prompt, Sampling, TokenEngine
from inference.llm.render import ChatMLRenderer
from inference.types import Usage


class TokenLLM:
    def __init__(self, engine: TokenEngine, renderer: ChatMLRenderer) -> None:
        self._engine = engine
        self.renderer = renderer

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """One completion. Raises LLMError or ContextOverflow."""
        prompt_ids = self.renderer.prompt_ids(prompt.nodes, prompt.limits)
        sampled = await self._engine.generate(prompt_ids, sampling)
        return Completion(
            self.renderer.decode(sampled.token_ids),
            finish=sampled.finish,
            token_ids=sampled.token_ids,
            logprobs=sampled.logprobs,
            usage=Usage(len(prompt_ids), sampled.cached_tokens, len(sampled.token_ids)),
            policy_version=sampled.policy_version,
        )

    def count(self, prompt: Prompt) -> int:
        """Tokens of the prompt."""
        return self.renderer.count_prompt(prompt.nodes, prompt.limits)
