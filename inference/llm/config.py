"""Which language model answers: the `model:` part of every config that runs an agent."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema import Config
from inference.llm.openai_chat import OpenAIChatConfig
from inference.llm.vllm import VLLMConfig


class EmbeddedModelConfig(Config):
    """A model folder served in this process. Needs the `train` extra."""

    kind: Literal["embedded"] = "embedded"
    path: str
    """Model folder: the `model/` of any stage."""
    slots: int = Field(default=16, ge=1)
    """Conversations whose computed prefixes are kept."""
    context: int = Field(default=2560, ge=2)
    """Tokens a conversation may hold."""
    threads: int | None = Field(default=1, ge=1)
    """CPU threads to compute with. None: torch's own choice."""


ModelConfig = Annotated[OpenAIChatConfig | VLLMConfig | EmbeddedModelConfig, Field(discriminator="kind")]


class ModelChoice(Config):
    """A file that says nothing but which model."""

    model: ModelConfig
