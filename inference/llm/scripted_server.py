"""A scripted OpenAI-compatible server: the real client's other end, on 127.0.0.1, without a model.

* `POST /v1/chat/completions` answers what the script says; `GET /v1/models` lists one model. Request bodies are kept.
* A script of turns is stateless: turn i answers the conversation that holds i assistant messages, so any number of
  conversations run at once and a resumed one goes on where it stopped. Beyond the last turn the server answers 400.
* A turn is a text, a whole `Completion` (native calls), or a `Reply` with a status, headers and a body of its own.
* `POST /v1/completions` is there for scripts that answer it with replies of their own.

    python -m inference.llm.scripted_server turns.jsonl --port 8000     (one JSON string a line)
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.llm.protocol import Completion
from inference.local_server import LocalServer
from inference.types import Finish


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Turn = str | Completion | Reply
Script = Sequence[Turn] | Callable[[dict[str, Any]], Turn]


def chat_app(script: Script, requests: list[dict[str, Any]], model: str = "scripted") -> Starlette:
    """The application; each request body is appended to `requests`."""

    async def complete(request: Request) -> Response:
        body = await request.json()
        requests.append(body)
        turn = _turn(script, body)
        if isinstance(turn, Reply):
            return JSONResponse(turn.body, status_code=turn.status, headers=dict(turn.headers))
        return JSONResponse(payload(Completion(turn) if isinstance(turn, str) else turn, model))

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": model, "object": "model", "owned_by": "proofhound"}]})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
        ]
    )


def payload(completion: Completion, model: str) -> dict[str, Any]:
    """A completion as the API sends it."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None}
    finish = "length" if completion.finish is Finish.LENGTH else "stop"
    if completion.calls:
        finish = "tool_calls"
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in completion.calls
        ]
    usage = completion.usage
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        },
    }


class ScriptedServer(LocalServer):
    """`with ScriptedServer(script) as server:` serves at `server.base_url` on a thread of its own."""

    def __init__(self, script: Script, *, port: int = 0) -> None:
        """Port 0: any free one."""
        self.requests: list[dict[str, Any]] = []
        """Bodies of the completions asked for, in order."""
        super().__init__(chat_app(script, self.requests), port)

    @property
    def base_url(self) -> str:
        """Up to and including the version, while the server runs."""
        return f"{self.base}/v1"

    def wait(self) -> None:
        """Until the server is told to stop."""
        self._thread.join()


def _turn(script: Script, body: dict[str, Any]) -> Turn:
    if not isinstance(script, Sequence):
        return script(body)
    place = sum(1 for message in body.get("messages", ()) if message.get("role") == "assistant")
    if place < len(script):
        return script[place]
    message = f"the script has {len(script)} turns; this conversation asks for one more"
    return Reply(400, {"error": {"message": message, "type": "invalid_request_error"}})


def main() -> None:
    """Serve a file of turns until interrupted."""
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible server on 127.0.0.1.")
    parser.add_argument("turns", type=Path, help="JSON lines, one string a turn")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    turns = [json.loads(line) for line in options.turns.read_text(encoding="utf-8").splitlines() if line.strip()]
    with suppress(KeyboardInterrupt), ScriptedServer(turns, port=options.port) as server:
        sys.stderr.write(f"serving {len(turns)} turns at {server.base_url}\n")
        server.wait()


if __name__ == "__main__":
    main()
