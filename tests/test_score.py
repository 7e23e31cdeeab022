"""Scores and comparisons: nothing vanishes from a denominator, nothing unscored counts as lost."""

import asyncio

import pytest

from configs.errors import InputError
from eval.compare import compare
from eval.score import PassAt, read_scores, score_episodes, summarise, write_scores
from eval.views import cost_table, headline, outcome_table
from inference.types import (
    Answer,
    Episode,
    EpisodeKey,
    Node,
    Question,
    Role,
    Step,
    StopReason,
    Trajectory,
    Usage,
)
from rollout_env.judge import ExactJudge
from rollout_env.outcome import Outcome
from rollout_env.problem import Gold, Problem, ProblemKind, Provenance


def problem(name, hops):
    return Problem(
        Question(name, f"{name}?"), Gold(("yes",)), Provenance(ProblemKind.WEBHOP, hops=hops, split="heldout")
    )


PROBLEMS = [problem("a", 1), problem("b", 1), problem("c", 2), problem("d", 10)]


def episode(name, what, sample=0, outage=False):
    key = EpisodeKey(name, sample)
    if outage:
        nodes = (Node(Role.ASSISTANT, "..."), Node(Role.TOOL, "The tool\nis down.", is_error=True, unavailable=True))
        attempt = Trajectory(nodes, (Step((), 0, (1,)),), StopReason.ANSWERED)
        return Episode(key, (attempt,), StopReason.ANSWERED, Answer(what), Usage(1, 0, 1, estimated=True), 1.0)
    if what == "down":
        return Episode(key, (), StopReason.ERRORED, error="connection refused")
    return Episode(key, (), StopReason.ANSWERED, Answer(what), Usage(100, 0, 10), 2.0)


def scored(*episodes, samples=1, problems=PROBLEMS, judge=None):
    return asyncio.run(score_episodes(problems, episodes, judge or ExactJudge(), samples=samples))


def test_the_headline_counts_every_selected_question():
    summary = summarise(scored(episode("a", "yes"), episode("b", "no"), episode("c", "down")))
    assert summary.accuracy.mean == 0.25
    assert summary.clean.mean == 0.5
    assert summary.missing == 1
    assert {o: n for o, n in summary.outcomes.items() if n} == {
        Outcome.CORRECT: 1,
        Outcome.INCORRECT: 1,
        Outcome.ERRORED: 1,
    }
    assert list(summary.by_hops) == ["1", "2", "10"]
    assert summary.by_hops["1"].mean == 0.5
    assert summary.by_split["heldout"].questions == 4
    assert (summary.completion_tokens, summary.seconds) == (10, 2.0)


def test_outages_are_counted_and_no_loss():
    scores = scored(episode("a", "yes", outage=True), episode("b", "no", outage=True), episode("c", "no"))
    assert [s.samples[0].outcome for s in scores[:3]] == [Outcome.CORRECT, Outcome.ERRORED, Outcome.INCORRECT]
    assert [s.samples[0].outages for s in scores[:3]] == [1, 1, 0]
    assert scores[1].samples[0].reason == "The tool is down."
    summary = summarise(scores)
    assert (summary.outages, summary.estimated, summary.clean.mean, summary.unclean) == (2, 2, 0.5, 2)
    assert headline(summary).endswith("; 1 errored, 1 not run; 2 met a tool outage)")
    table = outcome_table("Outcomes", {"run": summary})
    assert dict(zip(table.columns, table.rows[0], strict=True))["tool outage"] == 2
    assert "estimated, in episodes: 2 of run." in cost_table("Cost", {"run": summary}).note
    clean = summarise(scored(episode("a", "yes")))
    assert "outage" not in headline(clean)
    assert "estimated" not in cost_table("Cost", {"run": clean}).note


def test_pass_at_k_is_over_questions_with_k_clean_samples():
    full = [episode(p.question.id, "yes" if s == 0 else "no", s) for p in PROBLEMS for s in range(2)]
    assert summarise(scored(*full, samples=2)).pass_at == (PassAt(1, 0.5, 4), PassAt(2, 1.0, 4))
    broken = [*full[:-1], episode("d", "down", 1)]
    assert summarise(scored(*broken, samples=2)).pass_at == (PassAt(1, 0.625, 4), PassAt(2, 1.0, 3))


def test_scores_survive_the_disk(tmp_path):
    scores = scored(episode("a", "yes"), episode("b", "x\ud800"), episode("c", "down"))
    write_scores(tmp_path, scores)
    again = read_scores(tmp_path)
    assert again[1].samples[0].answer == "x\ufffd"
    assert [s.samples for s in again[2:]] == [s.samples for s in scores[2:]]
    assert summarise(again).accuracy == summarise(scores).accuracy


def test_an_episode_of_another_problem_set_is_refused():
    with pytest.raises(InputError, match="other/0/0"):
        scored(episode("other", "yes"))


def test_a_failure_is_no_loss_in_a_comparison():
    before = scored(*(episode(name, "yes") for name in "abcd"))
    after = scored(episode("a", "no"), episode("b", "down"), episode("c", "yes"))
    found = compare(before, after)
    assert (found.test.questions, found.left_out) == (2, 2)
    assert [flip.question_id for flip in found.lost] == ["a"]
    assert not found.gained
    assert found.test.difference == -0.5
    assert found.test.test == "exact McNemar"


def test_several_samples_are_compared_by_their_mean():
    before = scored(*(episode(n, "no", s) for n in "abcd" for s in range(2)), samples=2)
    after = scored(*(episode(n, "yes" if s else "no", s) for n in "abcd" for s in range(2)), samples=2)
    found = compare(before, after)
    assert found.test.difference == 0.5
    assert found.test.p == pytest.approx(2 / 16)
    assert found.test.test == "sign-flip permutation"


def test_different_judges_are_not_compared():
    class Other(ExactJudge):
        name = "other"

    with pytest.raises(InputError, match="different judges"):
        compare(scored(episode("a", "yes")), scored(episode("a", "yes"), judge=Other()))
