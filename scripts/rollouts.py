"""What `rollout` and `eval` share: their command line read into a plan, and the plan carried out in its folder.

* The run folder holds `problems.jsonl` (those selected, by the call that selected most), `episodes.jsonl`,
  `journal.jsonl` and the resolved config.
* What decides an episode (agent, model, web, seed, the problems' text) is the folder's identity; a folder of another
  run is refused. Samples, limit, concurrency and retries are not: a run may be extended.
"""

import argparse
import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError, RunFailed
from configs.run_folder import open_run, released_on_bad_input
from configs.schema import Config
from inference.agent import AgentConfig
from inference.llm.config import ModelConfig
from inference.types import Episode, EpisodeKey, StopReason
from inference.web.config import WebConfig
from rollout_env.config import RolloutConfig
from rollout_env.problem import Problem, read_problems, write_problems
from rollout_env.runner import read_episodes, rollout
from scripts.compose import NO_MODEL, agent_settings, load_agent, open_agent
from scripts.progress import progress

PROBLEMS = "problems.jsonl"


class Identity(Config):
    """What decides every episode of a run."""

    agent: AgentConfig
    model: ModelConfig
    web: WebConfig
    problems: str
    """sha256 of the problems file."""
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    out: Path
    identity: Identity
    problems: tuple[Problem, ...]
    samples: int
    concurrency: int
    retries: int


def plan(args: argparse.Namespace, config: RolloutConfig, problems: Path, samples: int) -> Plan:
    """Everything the run needs, checked before anything is written. Raises UsageError."""
    if config.model is None:
        raise ConfigError(NO_MODEL)
    selected = read_problems(problems)[: config.limit]
    identity = Identity(
        agent=load_agent(args.agent, agent_settings(args)),
        model=config.model,
        web=config.web,
        problems=hashlib.sha256(problems.read_bytes()).hexdigest(),
        seed=args.seed,
    )
    return Plan(args.out, identity, tuple(selected), samples, args.concurrency, config.retries)


def carry_out(run: Plan, kind: str) -> list[Episode]:
    """The episodes, those of earlier calls among them. Raises RunFailed when every one errored."""
    folder = open_run(run.out, kind, run.identity)
    with released_on_bad_input(folder, PROBLEMS):
        _keep_problems(run)
        episodes = asyncio.run(_roll_out(run, kind))
    errored = [episode for episode in episodes if episode.stop is StopReason.ERRORED]
    if len(errored) == len(episodes):
        raise RunFailed(f"every episode errored; the last one: {errored[-1].error}")
    return episodes


def _keep_problems(run: Plan) -> None:
    """Those selected, or the more that an earlier call selected: their episodes are still there."""
    path = run.out / PROBLEMS
    if not path.exists() or len(read_problems(path)) < len(run.problems):
        write_problems(path, run.problems)


def warning(episodes: Sequence[Episode]) -> str | None:
    """What to tell of the episodes that errored."""
    errored = [episode for episode in episodes if episode.stop is StopReason.ERRORED]
    if not errored:
        return None
    last = errored[-1].error
    return f"{len(errored)} of {len(episodes)} episodes errored ({last}); the same command tries them again"


async def _roll_out(run: Plan, label: str) -> list[Episode]:
    total = len(run.problems) * run.samples
    done = _done(run)
    async with open_agent(run.identity.agent, run.identity.model, run.identity.web) as agent:
        with progress(label, total=total, done=done) as bar:
            return await rollout(
                [problem.question for problem in run.problems],
                samples=run.samples,
                agent=agent,
                seed=run.identity.seed,
                concurrency=run.concurrency,
                out=run.out,
                on_episode=lambda episode: bar.advance(1, _note(episode)),
                retries=run.retries,
            )


def _done(run: Plan) -> int:
    known = read_episodes(run.out)
    wanted = [EpisodeKey(p.question.id, s, run.identity.seed) for p in run.problems for s in range(run.samples)]
    return sum(key in known and known[key].stop is not StopReason.ERRORED for key in wanted)


def _note(episode: Episode) -> str:
    return f"errored: {episode.error}" if episode.stop is StopReason.ERRORED else ""
