r"""Nodes to token ids in the Qwen3 ChatML form, without transformers.

* A prompt is a concatenation of per-node runs of ids and constant separators; each run is encoded once and cached, so
  a long conversation is never encoded again. A node the policy sampled contributes exactly the ids it was sampled as.
* The text form (`text`) is the same prompt as one string. `prompt_ids` equals the encoding of that string with special
  tokens enabled, for nodes that carry no sampled ids and no special token in their own text.
* Text of nodes cannot forge a turn: `<|im_start|>` in a page is encoded as ordinary characters.
* `CHAT_TEMPLATE` renders the same text from messages (`role`, `content`, and for native endpoints `tool_calls` and
  `tools`) through transformers' or vLLM's jinja, and marks what the policy wrote with `{% generation %}`.

    system, user   <|im_start|>ROLE\n TEXT <|im_end|>\n
    assistant      <|im_start|>assistant\n SAMPLED <|im_end|>\n  (<|im_end|> is appended when the turn was cut)
    tool           consecutive results share one user turn:
                   <|im_start|>user\n<tool_response>\nTEXT\n</tool_response>\n<tool_response>...</tool_response><|im_end|>\n
    next turn      <|im_start|>assistant\n
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from configs.errors import InputError, boundary
from inference.types import Node, Role
from inference.view import PLACEHOLDER

START = "<|im_start|>"
END = "<|im_end|>"

CHAT_TEMPLATE = r"""{%- macro tool_lines() -%}
{%- if tools %}{{ '\n\n# Tools\n\nYou may call one or more functions.\n<tools>' }}
{%- for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}
{{- '\n</tools>\n\nFor each call write\n<tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>' }}
{%- endif -%}
{%- endmacro -%}
{%- if tools and messages[0].role != 'system' %}
{{- '<|im_start|>system' + tool_lines() + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- generation %}
{%- if message.content %}{{- message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\n' }}{% endif %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else (call.function.arguments | tojson) }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>' }}
{%- endgeneration %}
{{- '\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content }}
{%- if loop.first and message.role == 'system' %}{{- tool_lines() }}{% endif %}
{{- '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""


class ChatMLRenderer:
    """Shared by every episode of a process. Ids are those of `tokenizer_file` (a `tokenizer.json`)."""

    def __init__(self, tokenizer_file: Path | str, *, cached_tokens: int = 16_000_000) -> None:
        """`cached_tokens` bounds the cache of runs, at four bytes a token. Raises InputError."""
        with boundary(InputError, f"{tokenizer_file}: not a usable tokenizer.json"):
            self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self._tokenizer.encode_special_tokens = True
        self.turn_start_id = self._special(START, tokenizer_file)
        self.turn_end_id = self._special(END, tokenizer_file)
        newline = self.encode("\n")
        self._end = array("I", [self.turn_end_id, *newline])
        self._newline = array("I", newline)
        self._generation = array("I", [self.turn_start_id, *self.encode("assistant\n")])
        self._runs: OrderedDict[tuple[int, int | None, bool], tuple[Node, array[int]]] = OrderedDict()
        self._cached_tokens = 0
        self._most_cached = cached_tokens

    def prompt_ids(self, nodes: Sequence[Node], limits: Sequence[int | None], *, generation: bool = True) -> list[int]:
        """Ids of the prompt: one run a node, then (with `generation`) the opening of the assistant's turn."""
        ids: list[int] = []
        for run in self._prompt_runs(nodes, limits):
            ids.extend(run)
        if generation:
            ids.extend(self._generation)
        return ids

    def count_prompt(self, nodes: Sequence[Node], limits: Sequence[int | None]) -> int:
        """len(prompt_ids(nodes, limits)), without building it."""
        return sum(map(len, self._prompt_runs(nodes, limits))) + len(self._generation)

    def count(self, node: Node, limit: int | None = None) -> int:
        """Tokens of the node as a message of its own, separators included."""
        return sum(map(len, self._prompt_runs((node,), (limit,))))

    def text(self, nodes: Sequence[Node], limits: Sequence[int | None], *, generation: bool = True) -> str:
        """The prompt as one string. A node's text stands in for its sampled ids."""
        parts: list[str] = []
        for i, (node, limit) in enumerate(zip(nodes, limits, strict=True)):
            shown = self.shown(node, limit)
            if node.role is not Role.TOOL:
                parts.append(f"{START}{node.role}\n{shown}{END}\n")
                continue
            opening = "\n" if i and nodes[i - 1].role is Role.TOOL else f"{START}user\n"
            closing = "" if _joined(nodes, i) else f"{END}\n"
            parts.append(f"{opening}<tool_response>\n{shown}\n</tool_response>{closing}")
        return "".join(parts) + (f"{START}assistant\n" if generation else "")

    def shown(self, node: Node, limit: int | None) -> str:
        """The node's text in its view form: whole, the placeholder (0), or its first `limit` tokens."""
        if limit is None:
            return node.text
        if limit == 0:
            return PLACEHOLDER
        return self._cut(node.text, limit)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; names of special tokens in it are ordinary characters."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, without the end-of-turn token."""
        body = ids[:-1] if ids and ids[-1] == self.turn_end_id else ids
        return str(self._tokenizer.decode(list(body), skip_special_tokens=False))

    def _special(self, token: str, where: Path | str) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise InputError(f"{where}: the tokenizer has no {token} token, which the ChatML form needs")
        return int(token_id)

    def _cut(self, text: str, limit: int) -> str:
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        while len(offsets) > limit:  # a shorter text can, rarely, split into more tokens than its share: cut again
            text = text[: offsets[limit][0]]
            offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
            if not text:
                break
        return text

    def _prompt_runs(self, nodes: Sequence[Node], limits: Sequence[int | None]) -> Iterator[array[int]]:
        for i, (node, limit) in enumerate(zip(nodes, limits, strict=True)):
            joins_previous = node.role is Role.TOOL and i > 0 and nodes[i - 1].role is Role.TOOL
            yield self._run(node, limit, joins_previous)
            if not _joined(nodes, i):
                yield self._closing(node, limit)

    def _closing(self, node: Node, limit: int | None) -> array[int]:
        ended = limit is None and node.token_ids and node.token_ids[-1] == self.turn_end_id
        return self._newline if ended else self._end

    def _run(self, node: Node, limit: int | None, joins_previous: bool) -> array[int]:
        key = (id(node), limit, joins_previous)
        held = self._runs.get(key)
        if held is not None:
            self._runs.move_to_end(key)
            return held[1]
        run = self._encode_run(node, limit, joins_previous)
        self._runs[key] = (node, run)  # holding the node keeps its id its own
        self._cached_tokens += len(run)
        while self._cached_tokens > self._most_cached and len(self._runs) > 1:
            _, (_, oldest) = self._runs.popitem(last=False)
            self._cached_tokens -= len(oldest)
        return run

    def _encode_run(self, node: Node, limit: int | None, joins_previous: bool) -> array[int]:
        """The node's ids without what closes its turn."""
        start = self.turn_start_id
        if node.role is Role.TOOL:
            body = f"<tool_response>\n{self.shown(node, limit)}\n</tool_response>"
            return array("I", self.encode("\n" + body) if joins_previous else [start, *self.encode("user\n" + body)])
        if node.role is Role.ASSISTANT:
            sampled = node.token_ids if limit is None else None
            body_ids = self.encode(self.shown(node, limit)) if sampled is None else sampled
            return array("I", [*self._generation, *body_ids])
        return array("I", [start, *self.encode(f"{node.role}\n{self.shown(node, limit)}")])


def _joined(nodes: Sequence[Node], i: int) -> bool:
    """Whether node i and the next one share a turn."""
    return nodes[i].role is Role.TOOL and i + 1 < len(nodes) and nodes[i + 1].role is Role.TOOL
