"""The one runner: questions in, episodes out. Training rollouts, evaluation and difficulty tests all use it.

* Result order is input order (question by question, sample by sample), whatever the order of completion.
* What an episode samples depends on its key alone, so concurrency, order and interruptions change no result.
* With `out`, each finished episode is appended to `out/episodes.jsonl` before anyone hears of it, and the same call
  again runs only the keys that are missing there. Steps of unfinished episodes are in `out/journal.jsonl`, from which
  the agent goes on. An errored episode is unfinished business: it is kept and shown, and a rerun tries it again.
* Which episodes count as errored, `Retry.errored` says; unless told, those that ended so or met an unavailable tool.
* A rollout that is errored, or whose agent raises an `InfraError`, is run again up to `Retry.times` times; where a tool
  was unavailable, from the step whose call met it first, to which its journal is rewound. A failed write
  (`StorageError`) is not the agent's: it ends the run, as does every error that is not an `InfraError`.
* When `HALT_AFTER` rollouts in a row have spent their retries, the run ends with `RunFailed`; what finished is kept.
* Cancellation and errors leave no task running and no half-written line.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from configs.errors import InfraError, InputError, RunFailed, StorageError, boundary
from inference.journal import Journal, Rewind
from inference.records import append_record, read_records
from inference.types import Episode, EpisodeKey, Question, StopReason
from rollout_env.schedule import (
    Close,
    Decision,
    Event,
    Failed,
    Finished,
    GiveUp,
    Halt,
    Idle,
    Rollout,
    Scheduler,
    Start,
    Submit,
    Update,
)

EPISODES = "episodes.jsonl"
JOURNAL = "journal.jsonl"
KIND = "episode"
HALT_AFTER = 10
"""So many rollouts in a row that spent their retries mean an outage, which no other rollout would survive either."""


class Agent(Protocol):
    async def run(self, question: Question, key: EpisodeKey, journal: Journal | None = None) -> Episode:
        """One episode. Raises InfraError, or returns an episode whose stop is `errored`, when infrastructure failed."""
        ...


Errored = Callable[[Episode], Awaitable[bool]]
"""Says whether infrastructure decided what became of an episode; `rollout_env.judge.errored` makes one."""


async def met_failure(episode: Episode) -> bool:
    """Infrastructure failed in it: all that can be said without a judge."""
    return episode.stop is StopReason.ERRORED or bool(episode.outages)


@dataclass(frozen=True, slots=True)
class Retry:
    times: int = 2
    """How often an errored rollout is run again before it is kept as it is."""
    errored: Errored = met_failure


async def rollout(
    questions: Sequence[Question],
    *,
    samples: int,
    agent: Agent,
    seed: int,
    concurrency: int,
    out: Path | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    retry: Retry = Retry(),
) -> list[Episode]:
    """`samples` episodes of each question, in input order; `on_episode` hears each that settles in this call.

    Raises InputError on duplicate ids, RunFailed when nothing works, StorageError when a write fails.
    """
    if len({question.id for question in questions}) < len(questions):
        raise InputError("the questions to roll out have duplicate ids")
    run = _Run(questions, samples, agent, seed, out, on_episode or (lambda episode: None), retry.errored)
    await run.recall()
    await run.drive(Scheduler(retries=retry.times, halt_after=HALT_AFTER), concurrency)
    keys = [run.key(Rollout(group, sample)) for group in range(len(questions)) for sample in range(samples)]
    return [run.episodes[key] for key in keys]


def read_episodes(out: Path) -> dict[EpisodeKey, Episode]:
    """The episodes of a run folder, by key; of several with one key the last. Empty when there are none yet."""
    path = out / EPISODES
    return {episode.key: episode for episode in read_records(path, Episode)} if path.exists() else {}


class _Run:
    """One call of `rollout`: what has settled, and how to do what the scheduler decides."""

    def __init__(
        self,
        questions: Sequence[Question],
        samples: int,
        agent: Agent,
        seed: int,
        out: Path | None,
        on_episode: Callable[[Episode], None],
        errored: Errored,
    ) -> None:
        self.questions = questions
        self.samples = samples
        self.agent = agent
        self.seed = seed
        self.on_episode = on_episode
        self.errored = errored
        self.out = out
        self.path: Path | None = None
        self.journal: Journal | None = None
        if out is not None:
            with boundary(StorageError, str(out)):
                out.mkdir(parents=True, exist_ok=True)
            self.path = out / EPISODES
            self.journal = Journal(out / JOURNAL)
        self.episodes: dict[EpisodeKey, Episode] = {}
        """Settled episodes by key."""
        self.given_up: set[EpisodeKey] = set()
        """Those of them that spent their retries."""
        self.failed: dict[Rollout, Episode] = {}
        """The latest failure of each rollout that has failed."""
        self.tasks: dict[asyncio.Task[Event], Start] = {}

    async def recall(self) -> None:
        """Settle what earlier calls finished."""
        known = {} if self.out is None else read_episodes(self.out)
        for group in range(len(self.questions)):
            for key in (self.key(Rollout(group, sample)) for sample in range(self.samples)):
                if key in known and not await self.errored(known[key]):
                    self.episodes[key] = known[key]

    def key(self, which: Rollout) -> EpisodeKey:
        return EpisodeKey(self.questions[which.group].id, which.sample, self.seed)

    async def drive(self, scheduler: Scheduler, concurrency: int) -> None:
        """Tell the scheduler what happened and do what it decides, until nothing runs."""
        self._compact()
        try:
            for event in self._opening(concurrency):
                self._do(scheduler.handle(event))
            while self.tasks:
                done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    worker = self.tasks.pop(task).worker
                    self._do(scheduler.handle(task.result()))
                    self._do(scheduler.handle(Idle(worker)))
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        self._compact()

    def _opening(self, concurrency: int) -> Iterator[Event]:
        for group in range(len(self.questions)):
            done = {s for s in range(self.samples) if self.key(Rollout(group, s)) in self.episodes}
            yield Submit(self.samples, frozenset(done))
        yield Close()
        for worker in range(concurrency):
            yield Idle(worker)

    def _do(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Start():
                    self.tasks[asyncio.create_task(self._attempt(decision.rollout))] = decision
                case GiveUp():
                    self.given_up.add(self.key(decision.rollout))
                    self._settle(self.failed[decision.rollout])
                case Halt():
                    raise RunFailed(self._why_halted())
                case Update():
                    pass

    async def _attempt(self, which: Rollout) -> Event:
        """Run the agent once. A finished episode is settled here, so that no later error can lose it."""
        key = self.key(which)
        try:
            episode = await self.agent.run(self.questions[which.group], key, self.journal)
        except StorageError:
            raise
        except InfraError as error:
            episode = Episode(key=key, tries=(), stop=StopReason.ERRORED, error=str(error))
        if await self.errored(episode):
            self._rewind(episode)
            self.failed[which] = episode
            return Failed(which)
        self._settle(episode)
        return Finished(which)

    def _settle(self, episode: Episode) -> None:
        if self.path is not None:
            append_record(self.path, KIND, str(episode.key), episode)
        self.episodes[episode.key] = episode
        self.on_episode(episode)

    def _rewind(self, episode: Episode) -> None:
        """Take back what followed the first outage, so that the next attempt makes those calls again."""
        if self.journal is not None and episode.outages:
            self.journal.append(episode.key, Rewind(*episode.outages[0]))

    def _compact(self) -> None:
        """Forget the steps of finished episodes; those of errored ones stay, to go on from."""
        if self.journal is not None:
            self.journal.compact(self.episodes.keys() - self.given_up)

    def _why_halted(self) -> str:
        *_, last = self.failed.values()
        kept = "" if self.path is None else f" What finished is in {self.path}; the same call again goes on from there."
        return f"too many rollouts failed in a row; the last one: {last.failure}.{kept}"
