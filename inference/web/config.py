"""Which web an agent sees: the `web:` part of every config that runs one."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema import Config
from inference.tools.config import WebLimits, WebToolsConfig


class EmbeddedWebConfig(WebLimits):
    """Recorded pages behind local servers: no network, no key."""

    kind: Literal["embedded"] = "embedded"
    corpus: str | None = None
    """Corpus folder (docs/corpus.md). None: the pages of the embedded facts."""
    transport: Literal["memory", "sockets"] = "memory"
    """How the clients reach the servers: within the process, or over 127.0.0.1. Answers are the same."""


class SerperJinaWebConfig(WebToolsConfig):
    """The open web through Serper and Jina Reader, or servers that speak as they do."""

    kind: Literal["serper_jina"] = "serper_jina"


WebConfig = Annotated[EmbeddedWebConfig | SerperJinaWebConfig, Field(discriminator="kind")]


class WebChoice(Config):
    """A file that says nothing but which web."""

    web: WebConfig
