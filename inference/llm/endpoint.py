"""One way to an HTTP endpoint of a language model, and the only retry layer there is.

* A try that fails for a passing reason (no connection, 408, 409, 425, 429, 5xx, an unusable 200) is made again after an
  exponential, jittered wait that is never shorter than the server's Retry-After; at most `tries` in all, and nothing
  is begun that would pass the overall deadline. What is then left is `LLMError`.
* A prompt that does not fit is `ContextOverflow`: by the machine code where the server sends one, else by its wording.
* What only the user can mend is `ConfigError`: a missing key (the variable is named), a refused key, an unknown model.
* The key stands in no error and no log, and is cut out of whatever the server sends back.
"""

import asyncio
import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
from pydantic import Field

from configs.errors import ConfigError, ContextOverflow, LLMError
from configs.schema import Config
from configs.secret import Address, EnvName, hide, read_key
from inference.records import clean

T = TypeVar("T")


class RetryConfig(Config):
    tries: int = Field(default=6, ge=1)
    """Tries in all."""
    first_wait_seconds: float = Field(default=1.0, ge=0)
    """Longest first wait; doubled for each further one."""
    longest_wait_seconds: float = Field(default=60.0, ge=0)
    """No wait of our own choosing is longer."""
    connect_seconds: float = Field(default=20.0, gt=0)
    try_seconds: float = Field(default=600.0, gt=0)
    """Wall-clock of one try."""
    deadline_seconds: float = Field(default=1800.0, gt=0)
    """Wall-clock of a request, waits included."""


class EndpointConfig(Config):
    base_url: Address
    """Up to and including the version, such as https://api.openai.com/v1 or http://127.0.0.1:8000/v1."""
    model: str
    """The name the server knows the model by."""
    api_key_env: EnvName | None = None
    """Name of the environment variable that holds the key. None: no key is sent."""
    retry: RetryConfig = RetryConfig()


class Transient(Exception):
    """This try failed for a reason that may pass. Raised by readers of a reply for a 200 that cannot be used."""

    def __init__(self, why: str, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Fault:
    """What an error reply means."""

    kind: type[Exception]
    """Transient, ContextOverflow, ConfigError or LLMError."""
    why: str


_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|maximum model length|longer than the (maximum )?model"
    r"|prompt is too long|input is too long|too many (input )?tokens|exceeds? the (model's )?(available )?context"
    r"|exceeds? (the )?context (window|limit|size|length)|context window (exceeds|limit)"
    r"|reduce the length of the (messages|prompt|input)|input length and `?max_tokens`? exceed"
    r"|(input|prompt) (token count|length).{0,40}exceeds",
    re.IGNORECASE,
)
_NOT_OVERFLOW = re.compile(r"valid range of max_tokens|invalid max_tokens|max_tokens is too large", re.IGNORECASE)
_PASSING = frozenset({408, 409, 425, 429})


def classify(status: int, text: str) -> Fault:
    """The meaning of an error reply. Pure."""
    why = f"HTTP {status}: {_one_line(text)}"
    if status in (400, 413, 422, 500) and _OVERFLOW.search(text) and not _NOT_OVERFLOW.search(text):
        return Fault(ContextOverflow, why)
    if status in (401, 403, 404):
        return Fault(ConfigError, why)
    if "insufficient_quota" in text:
        return Fault(LLMError, why)
    return Fault(Transient if status in _PASSING or status >= 500 else LLMError, why)


def wait_seconds(retry: RetryConfig, failures: int, retry_after: float | None, uniform: float) -> float:
    """The wait after the `failures`-th failure. `uniform` in [0, 1) is the jitter. Pure."""
    ceiling = min(retry.longest_wait_seconds, retry.first_wait_seconds * 2.0 ** (failures - 1))
    return max(retry_after or 0.0, ceiling * (0.5 + 0.5 * uniform))


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """The Retry-After header, in either of its forms."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None


class Endpoint:
    def __init__(self, config: EndpointConfig, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigError when the variable that should hold the key is not set, or holds what is none."""
        self.config = config
        self._url = config.base_url.rstrip("/")
        self._key = _key(config, environ)
        self._client: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    async def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """`read` of the JSON reply. Raises LLMError, ContextOverflow, ConfigError."""
        retry, started = self.config.retry, time.monotonic()
        failures = 0
        while True:
            left = retry.deadline_seconds - (time.monotonic() - started)
            try:
                return read(await self._once(path, body, min(retry.try_seconds, left)))
            except Transient as fault:
                failures += 1
                wait = wait_seconds(retry, failures, fault.retry_after, random.random())
                left = retry.deadline_seconds - (time.monotonic() - started)
                if failures >= retry.tries or wait >= left:
                    raise LLMError(f"{self._url}{path}: {fault} (tried {failures} times)") from fault
            await asyncio.sleep(wait)

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        if self._client is not None:
            client, self._client = self._client[1], None
            await client.aclose()

    async def _once(self, path: str, body: Mapping[str, Any], seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                reply = await self._http().post(self._url + path, json=body)
        except TimeoutError as error:
            raise Transient(f"no reply within {seconds:.0f} s") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigError(f"base_url {self._url!r}: {error}") from error
        except httpx.HTTPError as error:
            raise Transient(f"{type(error).__name__}: {_one_line(str(error))}") from error
        text = hide(reply.text, self._key)
        if reply.status_code != httpx.codes.OK:
            self._raise(classify(reply.status_code, text), reply.headers)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Transient("the reply is not JSON") from error
        return clean(value) if "\\u" in text else value  # only an escape can spell what UTF-8 cannot

    def _raise(self, fault: Fault, headers: Mapping[str, str]) -> None:
        if fault.kind is Transient:
            raise Transient(fault.why, retry_after_seconds(headers, datetime.now(UTC)))
        key = f" (key from {self.config.api_key_env})" if fault.kind is ConfigError and self.config.api_key_env else ""
        raise fault.kind(f"{self._url}, model {self.config.model}{key}: {fault.why}")

    def _http(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            local = httpx.URL(self._url).host in ("127.0.0.1", "localhost", "::1")
            self._client = (
                loop,
                httpx.AsyncClient(
                    headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                    timeout=httpx.Timeout(None, connect=self.config.retry.connect_seconds),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                    trust_env=not local,
                ),
            )
        return self._client[1]


def error_in_reply(reply: Any) -> str | None:
    """The error object some servers send with status 200, as text."""
    if not isinstance(reply, dict):
        return "the reply is not a JSON object"
    return str(reply["error"]) if reply.get("error") else None


def refuse_error(reply: Any) -> None:
    """Raises Transient or ContextOverflow for a 200 that carries an error."""
    error = error_in_reply(reply)
    if error is None:
        return
    if classify(400, error).kind is ContextOverflow:
        raise ContextOverflow(_one_line(error))
    raise Transient(f"error in a 200: {_one_line(error)}")


def _key(config: EndpointConfig, environ: Mapping[str, str]) -> str | None:
    if config.api_key_env is None:
        return None
    key = read_key(environ, config.api_key_env)
    if key is None:
        raise ConfigError(f"{config.base_url} needs a key: set the environment variable {config.api_key_env}")
    return key


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
