"""The agent: a config, a language model and tools, composed into `run(question, key) -> Episode`.

The config holds every constant of the dual loop; `configs/agents/*.yaml` hold the presets.
"""

from typing import Literal

from pydantic import Field

from configs.schema import Config


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
    """How `{tools}` describes a tool: one short line, or its JSON schema."""
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
