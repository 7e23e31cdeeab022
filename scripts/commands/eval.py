"""`proofhound eval BENCHMARK --out DIR`: an agent on a benchmark; episodes, scores and a report.

    proofhound eval heldout/problems.jsonl --model runs/demo/grpo/model --k 4 --out runs/e4
    proofhound eval score runs/e4                      scores and report again, from the episodes that are there
    proofhound eval compare runs/e3 runs/e4            what changed between two runs, question by question

* The headline counts every selected question; what errored, was not scored or not run is named beside it.
* The config is `eval.config.EvalConfig`, with `agent.*` for settings over those of `-a`. The same command again goes on
  where it stopped.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from configs.errors import InputError, UsageError
from configs.loader import load
from eval.compare import Comparison, Flip, compare
from eval.config import EvalConfig
from eval.report import HTML, write_report
from eval.score import QuestionScore, read_scores, score_episodes, summarise, write_scores
from eval.sections import TrajectoryView
from eval.views import comparison_line, evaluation_report, headline, trajectory_view
from inference.types import Episode
from rollout_env.judge import ExactJudge
from rollout_env.outcome import Outcome
from rollout_env.problem import Problem, read_problems
from rollout_env.runner import EPISODES, read_episodes
from scripts.compose import read_config
from scripts.rollouts import PROBLEMS, carry_out, plan, warning

_MOST_FLIPS = 10


def run(args: argparse.Namespace) -> int:
    folders = [Path(word) for word in args.overrides if "=" not in word]
    args.overrides = [word for word in args.overrides if "=" in word]
    if args.benchmark == "score":
        return _score(args, folders)
    if args.benchmark == "compare":
        return _compare(folders)
    if folders:
        raise UsageError(f"eval: {folders[0]}: one benchmark at a time (settings are key.path=value)")
    return _evaluate(args)


def _evaluate(args: argparse.Namespace) -> int:
    if args.out is None:
        raise UsageError("eval: --out DIR is required")
    config = read_config(EvalConfig, args)
    made = plan(args, config, Path(args.benchmark), args.k)
    episodes = carry_out(made, "eval")
    if (told := warning(episodes)) is not None:
        print(told, file=sys.stderr)
    title = f"{made.identity.agent.name} on {Path(args.benchmark).parent.name or args.benchmark}"
    return _publish(args.out, title, made.problems, episodes, made.samples, config)


def _score(args: argparse.Namespace, folders: Sequence[Path]) -> int:
    if len(folders) != 1:
        raise UsageError("eval score: name one run folder")
    (out,) = folders
    config = load(EvalConfig, args.config, args.overrides)
    problems = read_problems(out / PROBLEMS)
    episodes = list(read_episodes(out).values())
    if not episodes:
        raise InputError(f"{out}: no {EPISODES} there; `proofhound eval` and `proofhound rollout` write it")
    names = sorted({str(episode.meta.get("agent", "agent")) for episode in episodes})
    samples = 1 + max(episode.key.sample for episode in episodes)
    return _publish(out, f"{', '.join(names)} on {out.name}", problems, episodes, samples, config)


def _publish(
    out: Path,
    title: str,
    problems: Sequence[Problem],
    episodes: Sequence[Episode],
    samples: int,
    config: EvalConfig,
) -> int:
    scores = asyncio.run(score_episodes(problems, episodes, ExactJudge(), samples=samples))
    write_scores(out, scores)
    name = title.partition(" on ")[0]
    write_report(evaluation_report(title, name, scores, _examples(problems, episodes, scores, config.examples)), out)
    print(headline(summarise(scores)))
    print(out / HTML)
    return 0


def _examples(
    problems: Iterable[Problem], episodes: Iterable[Episode], scores: Iterable[QuestionScore], most: int
) -> list[TrajectoryView]:
    """Trajectories to read: a right one, then a wrong one, then right ones."""
    known = {problem.question.id: problem for problem in problems}
    first = {episode.key.question_id: episode for episode in episodes if episode.key.sample == 0}
    graded = [(score.question_id, score.samples[0].outcome) for score in scores if score.samples]
    graded = [(name, outcome) for name, outcome in graded if name in first and outcome is not Outcome.ERRORED]
    right = [pair for pair in graded if pair[1] is Outcome.CORRECT]
    wrong = [pair for pair in graded if pair[1] is not Outcome.CORRECT]
    chosen = [*right[:1], *wrong[:1], *right[1:], *wrong[1:]][:most]
    return [
        trajectory_view(f"Example {i}: {outcome.value.replace('_', ' ')}", known[name], first[name], outcome)
        for i, (name, outcome) in enumerate(chosen, 1)
    ]


def _compare(folders: Sequence[Path]) -> int:
    if len(folders) != 2:
        raise UsageError("eval compare: name two run folders")
    before, after = (read_scores(folder) for folder in folders)
    found = compare(before, after)
    for folder, scores in zip(folders, (before, after), strict=True):
        print(f"{folder}: {headline(summarise(scores))}")
    print(comparison_line(found))
    _print_flips(found)
    return 0


def _print_flips(found: Comparison) -> None:
    for name, flips in (("gained", found.gained), ("lost", found.lost)):
        for flip in flips[:_MOST_FLIPS]:
            print(f"{name}: {flip.question_id} {_change(flip)}: {flip.question}")
        if len(flips) > _MOST_FLIPS:
            print(f"{name}: {len(flips) - _MOST_FLIPS} more")


def _change(flip: Flip) -> str:
    return f"{flip.before:.2g} → {flip.after:.2g}"
