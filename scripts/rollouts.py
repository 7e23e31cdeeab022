"""What `rollout` and `eval` share: their command line read into a plan, and the plan carried out in its folder.

* The run folder holds `problems.jsonl` (those selected, by the call that selected most), `episodes.jsonl`,
  `journal.jsonl` and config.yaml, a `RunConfig`: everything the newest call was told.
* What decides an episode (agent, model, web, seed, the problems' text) and the judge are the folder's identity; another
  run's folder is refused. Samples, limit, concurrency and retries are not: a run may be extended.
* An episode that met an unavailable tool and is not right counts as errored, as everywhere (`rollout_env.judge`).
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
from eval.config import EvalConfig
from inference.agent import AgentConfig
from inference.llm.config import ModelConfig
from inference.types import Episode, EpisodeKey, StopReason
from inference.web.config import WebConfig
from rollout_env.config import RolloutConfig
from rollout_env.judge import ExactJudge, Judge, errored
from rollout_env.problem import Problem, read_problems, write_problems
from rollout_env.runner import Retry, read_episodes, rollout
from scripts.compose import NO_MODEL, agent_settings, load_agent, open_agent
from scripts.progress import progress

PROBLEMS = "problems.jsonl"
_JUDGES: dict[str, Judge] = {"exact": ExactJudge()}


class Identity(Config):
    """What decides every episode of a run, and what is said of it."""

    agent: AgentConfig
    model: ModelConfig
    web: WebConfig
    judge: str
    problems_sha256: str
    """Of the problems file."""
    seed: int


class RunConfig(Identity):
    """All that a run was told, resolved."""

    problems: str
    """The problems file, as an absolute path."""
    samples: int
    """Episodes a question: k."""
    limit: int | None
    """The first so many problems. None: all."""
    retries: int
    concurrency: int
    examples: int | None
    """Trajectories the report shows. None: no report is made."""

    @property
    def identity(self) -> Identity:
        return Identity(**{name: getattr(self, name) for name in Identity.model_fields})


@dataclass(frozen=True, slots=True)
class Plan:
    out: Path
    config: RunConfig
    problems: tuple[Problem, ...]

    @property
    def identity(self) -> Identity:
        return self.config.identity

    @property
    def samples(self) -> int:
        return self.config.samples


def plan(args: argparse.Namespace, config: RolloutConfig, problems: Path, samples: int) -> Plan:
    """Everything the run needs, checked before anything is written. Raises UsageError."""
    if config.model is None:
        raise ConfigError(NO_MODEL)
    selected = read_problems(problems)[: config.limit]
    resolved = RunConfig(
        agent=load_agent(args.agent, agent_settings(args)),
        model=config.model,
        web=config.web,
        judge=config.judge,
        problems=str(problems.absolute()),
        problems_sha256=hashlib.sha256(problems.read_bytes()).hexdigest(),
        seed=args.seed,
        samples=samples,
        limit=config.limit,
        retries=config.retries,
        concurrency=args.concurrency,
        examples=config.examples if isinstance(config, EvalConfig) else None,
    )
    return Plan(args.out, resolved, tuple(selected))


def carry_out(run: Plan, kind: str) -> list[Episode]:
    """The episodes, those of earlier calls among them. Raises RunFailed when every one errored."""
    folder = open_run(run.out, kind, run.config, run.identity)
    with released_on_bad_input(folder, PROBLEMS):
        _keep_problems(run)
        episodes, failed = asyncio.run(_roll_out(run, kind))
    if len(failed) == len(episodes):
        raise RunFailed(f"every episode errored; the last one: {failed[-1].failure}")
    return episodes


def _keep_problems(run: Plan) -> None:
    """Those selected, or the more that an earlier call selected: their episodes are still there."""
    path = run.out / PROBLEMS
    if not path.exists() or len(read_problems(path)) < len(run.problems):
        write_problems(path, run.problems)


def warning(episodes: Sequence[Episode]) -> str | None:
    """What to tell of the episodes in which infrastructure failed."""
    ended = [episode for episode in episodes if episode.stop is StopReason.ERRORED]
    met = [episode for episode in episodes if episode.stop is not StopReason.ERRORED and episode.outages]
    told = []
    if ended:
        told.append(f"{len(ended)} of {len(episodes)} episodes errored ({ended[-1].error})")
    if met:
        share = f"{len(met)} of {len(episodes)} episodes"
        told.append(f"{share} met an unavailable tool ({met[-1].failure}) and count as errored unless they are right")
    return f"{'; '.join(told)}; the same command tries what errored again" if told else None


async def _roll_out(run: Plan, label: str) -> tuple[list[Episode], list[Episode]]:
    """All episodes, and those of them that count as errored."""
    config, has_failed = run.config, errored(run.problems, _JUDGES[run.config.judge])
    known = read_episodes(run.out)
    wanted = [EpisodeKey(p.question.id, s, config.seed) for p in run.problems for s in range(run.samples)]
    done = [key for key in wanted if key in known and not await has_failed(known[key])]
    async with open_agent(config.agent, config.model, config.web) as agent:
        with progress(label, total=len(wanted), done=len(done)) as bar:
            episodes = await rollout(
                [problem.question for problem in run.problems],
                samples=run.samples,
                agent=agent,
                seed=config.seed,
                concurrency=config.concurrency,
                out=run.out,
                on_episode=lambda episode: bar.advance(1, _note(episode)),
                retry=Retry(config.retries, has_failed),
            )
    return episodes, [episode for episode in episodes if await has_failed(episode)]


def _note(episode: Episode) -> str:
    return f"errored: {episode.error}" if episode.stop is StopReason.ERRORED else episode.failure or ""
