"""From a `web:` config to the tools that reach that web, and back to nothing when done."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from configs.errors import ConfigError
from inference.llm.protocol import LLM
from inference.tools.config import WebLimits, WebToolsConfig
from inference.tools.toolbox import Toolbox, build_tools
from inference.web.config import EmbeddedWebConfig, WebConfig
from inference.web.recorded_web import RecordedWeb
from inference.web.server import MEMORY_BASE, WebServer, memory_transport


@asynccontextmanager
async def open_web(
    config: WebConfig, llm: LLM | None = None, recorded: RecordedWeb | None = None
) -> AsyncIterator[Toolbox]:
    """The web's tools by name, while the block runs. Raises ConfigError, InputError or InfraError on entry.

    `llm` reads pages where the config says `extractor: llm`. `recorded` is what an embedded web holds, in place of the
    config's corpus; one that names none needs it.
    """
    async with AsyncExitStack() as stack:
        if isinstance(config, EmbeddedWebConfig):
            web = _load(config) if recorded is None else recorded
            transport: httpx.AsyncBaseTransport | None = None
            if config.transport == "memory":
                transport, base = memory_transport(web), MEMORY_BASE
            else:
                base = stack.enter_context(WebServer(web)).base
            tools = build_tools(embedded_tools(config, base), transport, llm)
        else:
            tools = build_tools(config, None, llm)
        yield await stack.enter_async_context(tools)


def embedded_tools(config: EmbeddedWebConfig, base: str) -> WebToolsConfig:
    """The same limits, at the local servers under `base`."""
    limits = {name: getattr(config, name) for name in WebLimits.model_fields}
    return WebToolsConfig(**limits, search_url=f"{base}/search", reader_url=f"{base}/r")


def _load(config: EmbeddedWebConfig) -> RecordedWeb:
    if config.corpus is None:
        raise ConfigError("web.corpus: name a corpus folder")
    return RecordedWeb.load(config.corpus)
