"""The agent: a config, a language model and tools, composed into `run(question, key) -> Episode`.

The config holds every constant of the dual loop; `configs/agents/*.yaml` hold the presets.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from configs.errors import ConfigError
from configs.loader import content_hash
from configs.schema import Config
from inference.journal import EpisodeLog, Journal
from inference.llm.protocol import LLM, Sampling, ToolSpec
from inference.react import Limits, ReAct, Setup
from inference.records import without_surrogates
from inference.tools.protocol import Tool
from inference.tries import run_tries
from inference.types import Episode, EpisodeKey, Node, Question, Role
from inference.view import WindowView


class ViewConfig(Config):
    window: int | None = Field(default=5, ge=0)
    """K: turns whose observations stay in the prompt. None: all."""
    cut: int | None = Field(default=None, ge=1)
    """Tokens a kept observation is cut to. None: whole."""
    slack: int = Field(default=0, ge=0)
    """Turns the window may grow beyond K before it shrinks back. 0 is the paper."""


class SamplingConfig(Config):
    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    max_tokens: int = Field(default=16384, ge=1)
    """Sampled tokens a turn."""


class AgentConfig(Config):
    name: str
    """Stands in reports and in the episode's meta."""
    system_prompt: str
    """`{tools}` is replaced by the descriptions of the tools (see `tool_docs`)."""
    tools: tuple[str, ...]
    """Names of the tools the agent has, in the order they are described."""
    tool_docs: Literal["signatures", "schemas"] = "signatures"
    """How `{tools}` describes them: names with their required arguments, or JSON schemas."""
    calls: Literal["text", "native"] = "text"
    """Calls are written in the text in the Hermes form, or left to an endpoint that parses them itself."""
    view: ViewConfig = ViewConfig()
    sampling: SamplingConfig = SamplingConfig()
    max_turns: int = Field(default=200, ge=1)
    """T_max: LLM turns a try."""
    max_retries: int = Field(default=5, ge=0)
    """R_max: new tries after the first."""
    max_format_errors: int = Field(default=5, ge=1)
    """Turns in a row that neither ran a call nor stated a valid answer, after which a try ends."""
    context_tokens: int = Field(default=262144, ge=1)
    """Prompt and max_tokens together must fit, where the engine can count tokens."""
    episode_tokens: int | None = Field(default=None, ge=1)
    """Sampled tokens an episode, all tries together. None: no limit."""
    deadline_seconds: float | None = Field(default=None, gt=0)
    """Wall-clock an episode, checked before each turn. None: no limit."""
    tool_seconds: float = Field(default=600.0, gt=0)
    """Longest one tool call may take; longer ones count as an unavailable tool."""
    final_prompt: str | None = None
    """What the last try, run out, is asked before its one forced answer turn. None: no such turn."""


class Agent:
    """An agent ready to run; one instance serves any number of episodes at once."""

    def __init__(
        self, config: AgentConfig, llm: LLM, tools: Sequence[Tool], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`tools` may hold more than the config names. Raises ConfigError when one it names is missing."""
        self.config = config
        chosen = _chosen(config, tools)
        sampling = config.sampling
        self._setup = Setup(
            llm,
            chosen,
            Limits(
                max_turns=config.max_turns,
                max_format_errors=config.max_format_errors,
                context_tokens=config.context_tokens,
                episode_tokens=config.episode_tokens,
                deadline_seconds=config.deadline_seconds,
                tool_seconds=config.tool_seconds,
            ),
            view=WindowView(config.view.window, config.view.cut, config.view.slack),
            sampling=Sampling(sampling.temperature, sampling.top_p, sampling.max_tokens),
            native=config.calls == "native",
            clock=clock,
        )
        self._system = Node(Role.SYSTEM, system_text(config, [tool.spec for tool in chosen.values()]))
        self._meta = {"agent": config.name, "config": content_hash(config)}

    async def run(self, question: Question, key: EpisodeKey, journal: Journal | None = None) -> Episode:
        """One episode. With a journal it goes on from what is committed there. Raises StorageError, UsageError."""
        react = ReAct(self._setup, key, EpisodeLog(journal, key))
        episode = await run_tries(
            react,
            key,
            self.opening(question),
            max_retries=self.config.max_retries,
            final_prompt=self.config.final_prompt,
        )
        return replace(episode, meta=dict(self._meta))

    def opening(self, question: Question) -> tuple[Node, ...]:
        """The nodes every try starts from."""
        attached = "".join(f"\n- {path}" for path in question.attachments)
        text = question.text + (f"\n\nAttached files:{attached}" if attached else "")
        return (self._system, Node(Role.USER, without_surrogates(text)))


def system_text(config: AgentConfig, specs: Sequence[ToolSpec]) -> str:
    """The system prompt with its tools described."""
    return config.system_prompt.replace("{tools}", tool_docs(config.tool_docs, specs)).strip()


def tool_docs(form: Literal["signatures", "schemas"], specs: Sequence[ToolSpec]) -> str:
    """Names with their required arguments, in one line; or one JSON object a tool, a line each."""
    if form == "signatures":
        return ", ".join(f"{spec.name}({', '.join(spec.parameters.get('required', ()))})" for spec in specs)
    return "\n".join(
        json.dumps(
            {"name": spec.name, "description": spec.description, "parameters": spec.parameters}, ensure_ascii=False
        )
        for spec in specs
    )


def _chosen(config: AgentConfig, tools: Sequence[Tool]) -> dict[str, Tool]:
    offered = {tool.spec.name: tool for tool in tools}
    missing = [name for name in config.tools if name not in offered]
    if missing:
        raise ConfigError(
            f"agent {config.name}: no tool {', '.join(missing)}; there are: {', '.join(sorted(offered)) or 'none'}"
        )
    return {name: offered[name] for name in config.tools}
