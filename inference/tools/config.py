"""Settings of the web tools."""

from typing import Literal

from pydantic import Field

from configs.schema import Config
from configs.secret import Address, EnvName
from inference.tools.http import FetchLimits


class WebLimits(Config):
    """How much of the web an agent is shown, wherever it comes from."""

    num_results: int = Field(default=3, ge=1, le=100)
    """Hits a search shows unless the call asks for another number."""
    num_sentences: int = Field(default=4, ge=1)
    """Sentences of a page that `extractor: sentences` shows."""
    extractor: Literal["sentences", "llm"] = "sentences"
    """Who picks what a page says about the question: word overlap, or a language model that distils it."""
    page_chars: int = Field(default=400_000, ge=1)
    """Characters of a page that are looked at; what follows is cut off."""
    extract_tokens: int = Field(default=8192, ge=1)
    """Tokens `extractor: llm` may write about a page."""
    fetch: FetchLimits = FetchLimits()
    """Time, size and retries of every request."""


class WebToolsConfig(WebLimits):
    """A search and a reader server."""

    search_url: Address = "https://google.serper.dev/search"
    """Serper's API, or a server that speaks it."""
    search_key_env: EnvName = "SERPER_API_KEY"
    """Environment variable with the search key. Needed unless the server is this machine's own."""
    reader_url: Address = "https://r.jina.ai"
    """Jina Reader, or a server that speaks it."""
    reader_key_env: EnvName = "JINA_API_KEY"
    """Environment variable with the reader key. Without a key Jina answers more slowly."""
