"""Puts an agent together from its three configs: the agent, the model, the web; reads them from a command line.

The only place where the in-process engine of `training` meets the loop of `inference`; torch is imported when a config
asks for that engine, and not before. What a config names and is not there (folder, key, server) is an error on entry.
"""

import argparse
import importlib.util
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import httpx

from configs.errors import ConfigError, InputError, MissingExtraError
from configs.loader import load, resolve
from configs.schema import Config
from data_synthesis import factbook
from data_synthesis.pages import render_pages
from inference.agent import Agent, AgentConfig
from inference.llm.config import EmbeddedModelConfig, ModelConfig
from inference.llm.openai_chat import OpenAIChat
from inference.llm.protocol import LLM
from inference.llm.render import ChatMLRenderer
from inference.llm.token_llm import TokenLLM
from inference.llm.vllm import VLLMConfig, VLLMEngine
from inference.tools.http import is_loopback
from inference.web.config import EmbeddedWebConfig, WebConfig
from inference.web.open import open_web
from inference.web.recorded_web import Page, RecordedWeb

C = TypeVar("C", bound=Config)

NO_MODEL = (
    "no model: name a checkpoint with --model FOLDER (`proofhound demo` trains one), or give a config with a model, "
    "such as -c configs/models/openai_chat.yaml"
)
TOKENIZER = "tokenizer.json"
_AGENT_PREFIX = "agent."
_PROBE_SECONDS = 10.0
_EMBEDDED_SEED = 0
"""Wording and hosts of the pages of the embedded facts."""


def read_config(schema: type[C], args: argparse.Namespace) -> C:
    """What files, `--model`, `--corpus` and overrides give, all but the agent's settings. Raises ConfigError."""
    shorthand = []
    if args.model:
        shorthand += ["model.kind=embedded", f"model.path={json.dumps(str(args.model))}"]
    if args.corpus:
        shorthand += ["web.kind=embedded", f"web.corpus={json.dumps(str(args.corpus))}"]
    own = [item for item in args.overrides if not item.startswith(_AGENT_PREFIX)]
    return load(schema, args.config, [*shorthand, *own])


def agent_settings(args: argparse.Namespace) -> list[str]:
    """The overrides that are the agent's: `agent.key=value` as `key=value`."""
    return [item.removeprefix(_AGENT_PREFIX) for item in args.overrides if item.startswith(_AGENT_PREFIX)]


def load_agent(name: str, overrides: Sequence[str] = ()) -> AgentConfig:
    """A packaged agent by name, or one from a YAML file, with settings changed. Raises ConfigError."""
    return load(AgentConfig, [resolve("agents", name)], overrides, environ={})


@cache
def embedded_web() -> RecordedWeb:
    """The pages of the embedded facts."""
    pages = render_pages(factbook.load(), _EMBEDDED_SEED)
    return RecordedWeb(Page(page.url, page.title, page.text, page.links) for page in pages)


@asynccontextmanager
async def open_agent(
    agent: AgentConfig, model: ModelConfig, web: WebConfig, recorded: RecordedWeb | None = None
) -> AsyncIterator[Agent]:
    """An agent that runs while the block does. `recorded` takes the place of an embedded web's corpus.

    Raises UsageError for what the configs name and is not there, InfraError where a local server does not start.
    """
    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(open_llm(model))
        if recorded is None and isinstance(web, EmbeddedWebConfig) and web.corpus is None:
            recorded = embedded_web()
        tools = await stack.enter_async_context(open_web(web, llm, recorded))
        yield Agent(agent, llm, list(tools.values()))


@asynccontextmanager
async def open_llm(config: ModelConfig) -> AsyncIterator[LLM]:
    """The model, while the block runs. Raises UsageError: no key, no server, no folder, no `train` extra."""
    if isinstance(config, EmbeddedModelConfig):
        async with _embedded(config) as llm:
            yield llm
    elif isinstance(config, VLLMConfig):
        renderer = ChatMLRenderer(config.tokenizer_file)
        async with aclosing(VLLMEngine(config)) as engine:
            await _reach(config.base_url)
            yield TokenLLM(engine, renderer)
    else:
        async with aclosing(OpenAIChat(config)) as chat:
            await _reach(config.base_url)
            yield chat


@asynccontextmanager
async def _embedded(config: EmbeddedModelConfig) -> AsyncIterator[LLM]:
    folder = Path(config.path)
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: no model folder (it has no config.json)")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("a model in this process needs torch: pip install 'proofhound[train]'")
    from training.engine import SlotEngine

    renderer = ChatMLRenderer(folder / TOKENIZER)
    engine = SlotEngine.from_folder(
        folder,
        slots=config.slots,
        context=config.context,
        threads=config.threads,
        turn_end_id=renderer.turn_end_id,
    )
    async with engine:
        yield TokenLLM(engine, renderer)


async def _reach(base_url: str) -> None:
    """Whether anything answers there, before a run is begun. Any answer will do."""
    try:
        async with httpx.AsyncClient(timeout=_PROBE_SECONDS, trust_env=not is_loopback(base_url)) as client:
            await client.get(f"{base_url.rstrip('/')}/models")
    except httpx.InvalidURL as error:
        raise ConfigError(f"model.base_url: {base_url!r} is no address: {error}") from error
    except httpx.RequestError as error:
        detail = " ".join(f"{type(error).__name__} {error}".split())
        raise InputError(f"model.base_url: {base_url} cannot be reached ({detail})") from error
