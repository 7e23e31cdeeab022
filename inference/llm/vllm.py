"""vLLM by token ids: `/v1/completions` with the prompt as ids and the sampled ids and log-probabilities back.

* Nothing is tokenised on either side: ids in (`prompt`), ids out (`return_token_ids`).
* Log-probabilities are those of the distribution sampled from when the server runs with
  `--logprobs-mode processed_logprobs`; at temperature 1 and top-p 1, as in training, the default says the same.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from configs.errors import LLMError
from inference.llm.endpoint import Endpoint, EndpointConfig, Transient, refuse_error
from inference.llm.protocol import Sampling, TokenCompletion
from inference.types import Finish


class VLLMConfig(EndpointConfig):
    kind: Literal["vllm"] = "vllm"
    tokenizer_file: str
    """The `tokenizer.json` of the model served."""


class VLLMEngine:
    def __init__(self, config: VLLMConfig, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigError when the key's variable is not set."""
        self._config = config
        self._endpoint = Endpoint(config, environ)
        self.policy_version = 0
        """Stamped on every completion; whoever updates the served weights sets it."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> TokenCompletion:
        """Sampled ids and their log-probabilities. Raises LLMError, ContextOverflow, ConfigError."""
        version = self.policy_version
        return await self._endpoint.post(
            "/completions", request_body(self._config.model, prompt_ids, sampling), lambda reply: read(reply, version)
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def request_body(model: str, prompt_ids: Sequence[int], sampling: Sampling) -> dict[str, Any]:
    """The request. Pure."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt_ids),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    return body


def read(reply: Any, policy_version: int = 0) -> TokenCompletion:
    """The completion in a 200 reply. Raises Transient for one that cannot be used, LLMError for another protocol."""
    refuse_error(reply)
    choices = reply.get("choices")
    if not choices or not isinstance(choices, list) or not isinstance(choices[0], Mapping):
        raise Transient("the reply has no choices")
    choice = choices[0]
    finish = choice.get("finish_reason")
    if finish not in ("stop", "length"):
        raise Transient(f"the reply is incomplete: finish_reason {finish}")
    ids = choice.get("token_ids")
    logprobs = _mapping(choice.get("logprobs")).get("token_logprobs")
    if ids is None or logprobs is None:
        raise LLMError("the server returns no token_ids or no logprobs; vLLM >= 0.11 does")
    if not _all_of(ids, int) or not _all_of(logprobs, int, float):
        raise LLMError("the server returned token_ids or logprobs that are no numbers")
    if len(ids) != len(logprobs):
        raise LLMError(f"the server returned {len(ids)} token ids with {len(logprobs)} log-probabilities")
    cached = _mapping(_mapping(reply.get("usage")).get("prompt_tokens_details")).get("cached_tokens")
    return TokenCompletion(
        tuple(ids),
        tuple(logprobs),
        Finish.LENGTH if finish == "length" else Finish.STOP,
        cached_tokens=cached if isinstance(cached, int) else 0,
        policy_version=policy_version,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _all_of(values: Any, *kinds: type) -> bool:
    return isinstance(values, list) and all(type(value) in kinds for value in values)
