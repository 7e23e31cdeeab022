"""The one way a tool reaches the network.

* Only addresses under the configured bases are reachable: same scheme, host and port, and a path below the base's.
  Everything else is refused before anything is sent. Redirects are not followed, so an answer cannot lead elsewhere.
* A body is read to at most `max_bytes` and the rest is left (`Reply.truncated`); a try takes at most `timeout_s`,
  however slowly the bytes come.
* 408, 425, 429, 5xx and failures of the transport are tried again, `retries` times at most, waiting `backoff_s`, twice
  that, ... and never more than `BACKOFF_MAX_S`, or as long as the server's Retry-After says. What still fails is
  `ToolUnavailable`. Any other status is an answer, for the caller to judge.
* Neither headers nor bodies sent stand in any error, and a key that the server repeats is cut out of its answer.
* Connections are pooled per event loop. `aclose` closes those of the running loop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
from pydantic import Field

from configs.errors import ToolUnavailable
from configs.schema import Config
from configs.secret import hide

BACKOFF_MAX_S = 30.0
_AGAIN = frozenset({408, 425, 429})
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class FetchLimits(Config):
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds a try may take from connecting to the last byte."""
    retries: int = Field(default=4, ge=0)
    """Tries after the first."""
    backoff_s: float = Field(default=1.0, ge=0)
    """Seconds before the first retry; doubled before each further one."""
    max_bytes: int = Field(default=4_000_000, gt=0)
    """Bytes of an answer that are read."""
    connections: int = Field(default=64, gt=0)
    """Connections open at once, in all."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    text: str
    """Body as UTF-8; bytes that are none are replaced."""
    truncated: bool = False
    """The body went on beyond `max_bytes`."""


def is_loopback(address: str) -> bool:
    """Whether `address` names this machine, where no key is needed."""
    host = httpx.URL(address).host
    return host in _LOOPBACK or host.endswith(".localhost")


class Fetcher:
    def __init__(
        self, allowed: Sequence[str], limits: FetchLimits, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """`transport`: takes the place of the network, for servers in this process."""
        self._allowed = [httpx.URL(base) for base in allowed]
        self._limits = limits
        self._transport = transport
        self._client: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    async def send(
        self,
        method: str,
        address: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        key: str | None = None,
    ) -> Reply:
        """One answer, with `key` (what the headers hold of it) cut out of it. Raises ToolUnavailable."""
        url = self._admitted(address)
        limits, failure, wait = self._limits, "", 0.0
        for attempt in range(limits.retries + 1):
            if attempt:
                await asyncio.sleep(min(max(wait, limits.backoff_s * 2 ** (attempt - 1)), BACKOFF_MAX_S))
            try:
                async with asyncio.timeout(limits.timeout_s):
                    reply, wait = await self._once(method, url, headers, json)
            except TimeoutError:
                failure, wait = f"gave no answer in {limits.timeout_s:g} s", 0.0
            except httpx.RequestError as error:
                failure, wait = (
                    f"cannot be reached or read ({' '.join(f'{type(error).__name__} {error}'.split())})",
                    0.0,
                )
            else:
                if reply.status not in _AGAIN and reply.status < 500:
                    return replace(reply, text=hide(reply.text, key))
                failure = f"answered {reply.status}"
        times = f", {limits.retries + 1} times" if limits.retries else ""
        raise ToolUnavailable(f"{_server(url)} {failure}{times}")

    async def aclose(self) -> None:
        if self._client is not None and self._client[0] is asyncio.get_running_loop():
            await self._client[1].aclose()
        self._client = None

    def _admitted(self, address: str) -> httpx.URL:
        try:
            url = httpx.URL(address)
        except (httpx.InvalidURL, TypeError) as error:
            raise ToolUnavailable(f"refused: not an address ({error})") from error
        if not any(_is_below(url, base) for base in self._allowed):
            known = ", ".join(str(base) for base in self._allowed)
            raise ToolUnavailable(f"refused: {_server(url)} is none of the configured servers ({known})")
        return url

    async def _once(
        self, method: str, url: httpx.URL, headers: Mapping[str, str] | None, json: Any
    ) -> tuple[Reply, float]:
        """(reply, seconds the server asks to wait)."""
        async with self._pool().stream(method, url, headers=headers, json=json) as response:
            body = bytearray()
            truncated = False
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._limits.max_bytes:
                    del body[self._limits.max_bytes :]
                    truncated = True
                    break
            after = response.headers.get("retry-after", "")
            text = body.decode("utf-8", "replace")
            return Reply(response.status_code, text, truncated), float(after) if after.isdecimal() else 0.0

    def _pool(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            self._client = (loop, self._new_client())
        return self._client[1]

    def _new_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(
            max_connections=self._limits.connections, max_keepalive_connections=self._limits.connections
        )
        # A proxy of the environment is for the world outside; it must not be asked for this machine's own servers.
        here = {
            f"all://{base.netloc.decode()}": httpx.AsyncHTTPTransport(limits=limits)
            for base in self._allowed
            if self._transport is None and is_loopback(str(base))
        }
        return httpx.AsyncClient(
            transport=self._transport,
            mounts=here,
            limits=limits,
            timeout=self._limits.timeout_s,
            follow_redirects=False,
        )


def _is_below(url: httpx.URL, base: httpx.URL) -> bool:
    same = (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port) and not url.userinfo
    # httpx resolves "..", but not one that is percent-escaped, which a server may still resolve.
    climbs = ".." in url.path.split("/")
    root = base.path.rstrip("/")
    return same and not climbs and (url.path == root or url.path.startswith(root + "/"))


def _server(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.host}" + (f":{url.port}" if url.port else "")
