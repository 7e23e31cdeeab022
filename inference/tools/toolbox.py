"""The web tools as an agent is given them.

`build_tools` checks what can be checked before the first call: a key that is needed and not set is a `ConfigError`.
The toolbox is a plain dict of tools by name; leaving it as an async context closes its connections.
"""

import os
from collections.abc import Mapping
from types import TracebackType

import httpx

from configs.errors import ConfigError
from configs.secret import read_key
from inference.llm.protocol import LLM
from inference.tools.config import WebToolsConfig
from inference.tools.extract import Extractor, LLMExtractor, SentenceExtractor
from inference.tools.google_search import GoogleSearch
from inference.tools.http import Fetcher, is_loopback
from inference.tools.protocol import Tool
from inference.tools.scrape import Scrape


class Toolbox(dict[str, Tool]):
    def __init__(self, tools: Mapping[str, Tool], fetcher: Fetcher) -> None:
        super().__init__(tools)
        self._fetcher = fetcher

    async def __aenter__(self) -> "Toolbox":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._fetcher.aclose()


def build_tools(
    config: WebToolsConfig,
    transport: httpx.AsyncBaseTransport | None = None,
    llm: LLM | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Toolbox:
    """`google_search` and `scrape_and_extract_info`. Raises ConfigError.

    `transport` takes the place of the network; `llm` reads pages where the config says `extractor: llm`.
    """
    for url in (config.search_url, config.reader_url):
        _check_address(url)
    fetcher = Fetcher((config.search_url, config.reader_url), config.fetch, transport)
    search_key = read_key(environ, config.search_key_env)
    if search_key is None and not is_loopback(config.search_url):
        raise ConfigError(f"{config.search_key_env} is not set: google_search needs a key for {config.search_url}")
    reader_key = read_key(environ, config.reader_key_env)
    search = GoogleSearch(config.search_url, search_key, config.num_results, fetcher)
    scrape = Scrape(config.reader_url, reader_key, config.page_chars, _extractor(config, llm), fetcher)
    return Toolbox({tool.spec.name: tool for tool in (search, scrape)}, fetcher)


def _extractor(config: WebToolsConfig, llm: LLM | None) -> Extractor:
    if config.extractor == "sentences":
        return SentenceExtractor(config.num_sentences)
    if llm is None:
        raise ConfigError("extractor: llm needs a model to read pages with, and none is configured")
    return LLMExtractor(llm, config.extract_tokens)


def _check_address(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url!r} is not the address of a server: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"{url!r} is not the address of a server; expected http(s)://host...")
