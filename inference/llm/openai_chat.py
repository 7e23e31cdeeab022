"""Any OpenAI-compatible chat endpoint.

* With tools in the prompt, calls travel in the endpoint's own fields (`tools`, `tool_calls`, role `tool`). Without, the
  conversation is plain text: results go back as `<tool_response>` blocks of a user message, as the ChatML form has it.
* `reasoning_content` (or `reasoning`) is folded into the text as `<think>`, so thoughts are kept with every endpoint.
* Native arguments that are no JSON object are folded into the text as the call they were meant to be: the loop then
  tells the model what is wrong with it.
* A reply without choices, without content, without a finish reason or with an error inside is retried, then `LLMError`.
  A reply cut at max_tokens is a completion whose finish says so.
* What the endpoint does not count is estimated, and the usage says so: budgets of tokens hold with every endpoint.

Without a tokenizer a limit of n tokens is taken as 4n characters, and n bytes of text as n/4 tokens.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from configs.secret import EnvName
from inference.llm.endpoint import Endpoint, EndpointConfig, Transient, refuse_error
from inference.llm.protocol import Completion, Prompt, Sampling, ToolSpec
from inference.toolcall import parse_arguments, without_calls
from inference.types import Finish, Node, Role, ToolCall, Usage
from inference.view import PLACEHOLDER

_CHARS_PER_TOKEN = 4
_FAILED = frozenset({None, "error", "abort", "content_filter"})


class OpenAIChatConfig(EndpointConfig):
    kind: Literal["openai_chat"] = "openai_chat"
    api_key_env: EnvName | None = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key. None: no key is sent."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the limit of sampled tokens."""
    send_seed: bool = True
    """Some servers refuse the field."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Sent with every request as it is."""


class OpenAIChat:
    def __init__(self, config: OpenAIChatConfig, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigError when the key's variable is not set."""
        self._config = config
        self._endpoint = Endpoint(config, environ)

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """One completion. Raises LLMError, ContextOverflow, ConfigError."""
        body = self._body(prompt, sampling)
        completion = await self._endpoint.post("/chat/completions", body, read_completion)
        return replace(completion, usage=with_estimates(completion, body, sampling.max_tokens))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    def _body(self, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": messages(prompt),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._config.max_tokens_field: sampling.max_tokens,
        }
        if sampling.seed is not None and self._config.send_seed:
            body["seed"] = sampling.seed
        if prompt.tools:
            body["tools"] = [tool_object(spec) for spec in prompt.tools]
        return body | self._config.extra_body


def messages(prompt: Prompt) -> list[dict[str, Any]]:
    """The conversation as chat messages. Pure."""
    native = bool(prompt.tools) or _has_native_calls(prompt)
    out: list[dict[str, Any]] = []
    for node, limit in zip(prompt.nodes, prompt.limits, strict=True):
        text = _shown(node, limit)
        if node.role is Role.TOOL and native:
            out.append({"role": "tool", "tool_call_id": node.call_id, "content": text})
        elif node.role is Role.TOOL:
            _append_response(out, text)
        elif node.role is Role.ASSISTANT and native and node.calls:
            out.append({
                "role": "assistant",
                "content": without_calls(text) or None,
                "tool_calls": [_call_object(call) for call in node.calls],
            })  # fmt: skip
        else:
            out.append({"role": str(node.role), "content": text})
    return out


def tool_object(spec: ToolSpec) -> dict[str, Any]:
    """The tool as the API describes it."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def read_completion(reply: Any) -> Completion:
    """The completion in a 200 reply. Raises Transient for one that cannot be used."""
    refuse_error(reply)
    choices = reply.get("choices")
    if not choices or not isinstance(choices, list):
        raise Transient("the reply has no choices")
    choice = _object(choices[0], "choice")
    finish = choice.get("finish_reason")
    if not isinstance(finish, str) or finish in _FAILED:
        raise Transient(f"the reply is incomplete: finish_reason {finish}")
    text, calls = _read_message(_object(choice.get("message") or {}, "message"))
    if not text and not calls and finish != "length":
        raise Transient("the reply is empty")
    return Completion(
        text, calls, Finish.LENGTH if finish in ("length", "max_tokens") else Finish.STOP, usage=_usage(reply)
    )


def with_estimates(completion: Completion, body: Mapping[str, Any], max_tokens: int) -> Usage:
    """The completion's usage, with estimates for what `body` and the completion hold and the server counted as 0.

    A turn that was cut counts as `max_tokens`, whatever of it the server shows. Pure.
    """
    usage = completion.usage
    cut = max_tokens if completion.finish is Finish.LENGTH else 0
    calls = [_call_object(call) for call in completion.calls]
    prompt = usage.prompt_tokens or _tokens_of([body["messages"], body.get("tools", [])])
    sampled = usage.completion_tokens or cut or _tokens_of([completion.text, calls])
    estimated = (prompt, sampled) != (usage.prompt_tokens, usage.completion_tokens)
    return replace(usage, prompt_tokens=prompt, completion_tokens=sampled, estimated=estimated)


def _tokens_of(value: Any) -> int:
    """About how many tokens the strings in `value` are, keys of mappings aside."""
    return -(-_bytes(value) // _CHARS_PER_TOKEN)


def _bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, list) else 0


def _has_native_calls(prompt: Prompt) -> bool:
    """Calls given in fields, not in the text: a turn that offers no tools must still pair their results."""
    return any(node.calls and "<tool_call>" not in node.text for node in prompt.nodes)


def _shown(node: Node, limit: int | None) -> str:
    if limit is None:
        return node.text
    return PLACEHOLDER if limit == 0 else node.text[: limit * _CHARS_PER_TOKEN]


def _append_response(out: list[dict[str, Any]], text: str) -> None:
    block = f"<tool_response>\n{text}\n</tool_response>"
    if out and out[-1].get("role") == "user" and out[-1]["content"].startswith("<tool_response>"):
        out[-1]["content"] += "\n" + block
    else:
        out.append({"role": "user", "content": block})


def _call_object(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _read_message(message: Mapping[str, Any]) -> tuple[str, tuple[ToolCall, ...]]:
    text = _content(message.get("content"))
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought.strip() and "</think>" not in text:
        text = f"<think>\n{thought.strip()}\n</think>\n{text}"
    items = message.get("tool_calls") or []
    if not isinstance(items, list):
        raise Transient("the reply's tool_calls are no list")
    calls: list[ToolCall] = []
    for item in (_object(item, "tool call") for item in items):
        function = _object(item.get("function") or {}, "tool call")
        name, raw = str(function.get("name") or ""), function.get("arguments") or ""
        raw = raw if isinstance(raw, str) else json.dumps(raw)
        parsed = parse_arguments(raw)
        if parsed is None or not name:
            text += f'\n<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {raw}}}\n</tool_call>'
        else:
            calls.append(ToolCall(str(item.get("id") or ""), name, *parsed))
    return text, tuple(calls)


def _content(content: Any) -> str:
    """The text of a message, which some servers send in parts; parts that are no text are left out."""
    if not content or isinstance(content, str):
        return content or ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    texts = [text for text in parts if isinstance(text, str)]
    if not texts:
        raise Transient("the reply's content is no text")
    return "".join(texts)


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Transient(f"the reply's {what} is no JSON object")
    return value


def _usage(reply: Mapping[str, Any]) -> Usage:
    """What the server counted; a count it does not give, or not as a number, is 0."""
    usage = _mapping(reply.get("usage"))
    details = _mapping(usage.get("prompt_tokens_details"))
    return Usage(
        _tokens(usage.get("prompt_tokens")),
        _tokens(details.get("cached_tokens")),
        _tokens(usage.get("completion_tokens")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _tokens(count: Any) -> int:
    return count if type(count) is int and count > 0 else 0
