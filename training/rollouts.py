"""The rollouts of a policy-optimisation update: an agent over the engine, through the one runner, judged.

* Update u samples `samples` rollouts of `questions` questions at temperature 1 and top-p 1, whatever the agent's config
  says: the recorded log-probabilities are then the policy's own. Its seed and questions follow from (seed, u) alone.
* Each pass over the problems is a new order cut into updates; what does not fill one is left for the next pass. No
  question stands twice in an update.
* Rollouts are kept in `rollouts/update-NNNN/`. An update that is done again after a crash reads them there.
* Judging has `RolloutSource`'s contract: one sample an episode; what is not clean has no reward.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from configs.errors import ConfigError, InputError
from configs.loader import load, resolve
from inference.agent import Agent, AgentConfig
from inference.llm.protocol import TokenEngine
from inference.llm.render import ChatMLRenderer
from inference.llm.token_llm import TokenLLM
from inference.web.config import EmbeddedWebConfig
from inference.web.open import open_web
from inference.web.recorded_web import RecordedWeb
from rollout_env.judge import ExactJudge, errored
from rollout_env.problem import Problem, read_problems
from rollout_env.runner import Retry, rollout
from rollout_env.sample import Sample, score
from training.train_config import GrpoConfig

FOLDER = "rollouts"


class RolloutSource(Protocol):
    async def __call__(self, update: int, engine: TokenEngine) -> Sequence[Sample]:
        """The judged rollouts of an update, sampled by the policy `engine` computes with."""
        ...


class AgentRollouts:
    """The source that `grpo` uses. Raises UsageError on construction where the config cannot work."""

    def __init__(
        self, config: GrpoConfig, out: Path, renderer: ChatMLRenderer, recorded: RecordedWeb | None = None
    ) -> None:
        """`recorded` is the web of an embedded `web:` that names no corpus."""
        self._config = config
        self._out = out / FOLDER
        self._renderer = renderer
        self._problems = read_problems(config.problems)
        if config.questions > len(self._problems):
            raise InputError(f"{config.problems}: fewer problems than the {config.questions} questions of one update")
        self._agent = on_policy(load(AgentConfig, [agent_file(config)], environ={}))
        if config.engine.context < self._agent.context_tokens:
            raise ConfigError(f"engine.context: below the agent's context_tokens ({self._agent.context_tokens})")
        self._recorded = recorded or _corpus(config)

    async def __call__(self, update: int, engine: TokenEngine) -> Sequence[Sample]:
        config = self._config
        problems, judge = drawn(self._problems, update, config.questions, config.seed), ExactJudge()
        async with open_web(config.web, recorded=self._recorded) as tools:
            agent = Agent(self._agent, TokenLLM(engine, self._renderer), list(tools.values()))
            episodes = await rollout(
                [problem.question for problem in problems],
                samples=config.samples,
                agent=agent,
                seed=update_seed(config.seed, update),
                concurrency=config.concurrency,
                out=self._out / f"update-{update:04d}",
                retry=Retry(errored=errored(problems, judge)),
            )
        return await score(problems, episodes, judge, config.reward)


def _corpus(config: GrpoConfig) -> RecordedWeb | None:
    """Loaded once: every update opens the web anew."""
    web = config.web
    if not isinstance(web, EmbeddedWebConfig):
        return None
    if web.corpus is None:
        raise ConfigError("web.corpus: name a corpus folder")
    return RecordedWeb.load(web.corpus)


def agent_file(config: GrpoConfig) -> Path:
    return resolve("agents", config.agent)


def on_policy(agent: AgentConfig) -> AgentConfig:
    """The same agent, sampling at temperature 1 and top-p 1."""
    sampling = agent.sampling.model_copy(update={"temperature": 1.0, "top_p": 1.0})
    return agent.model_copy(update={"sampling": sampling})


def drawn(problems: Sequence[Problem], update: int, count: int, seed: int) -> list[Problem]:
    """The problems of an update."""
    passed, place = divmod(update, len(problems) // count)
    order = np.random.default_rng((seed, passed)).permutation(len(problems))
    return [problems[i] for i in order[place * count : (place + 1) * count]]


def update_seed(seed: int, update: int) -> int:
    """31 bits that differ from update to update."""
    return int.from_bytes(hashlib.sha256(f"{seed}/update/{update}".encode()).digest()[:4]) >> 1
