"""Training sets from episodes: what is kept, what is turned down, and why."""

import math

import pytest

from data_synthesis.ledger import Funnel, Ledger, Rejection, funnel_table
from data_synthesis.pairs import Pair, PairsConfig, lengths, make_pairs
from data_synthesis.sft_set import REASONS, SftSetConfig, sft_episodes
from inference.records import append_record, read_records
from tests.episodes import HITS, call_turn, episode, final_turn, problem
from training.rows import Pair as TrainedPair

PROBLEMS = {"q1": problem("q1"), "q2": problem("q2", split="heldout")}


def right(sample, **options):
    return episode(sample=sample, **options)


def wrong(sample, **options):
    return episode([call_turn(0), final_turn("Oslo")], answer="Oslo", sample=sample, **options)


def test_sft_keeps_what_is_right_proved_and_clean():
    given = [
        right(0),
        right(1),
        wrong(2),
        episode(evidence=(), sample=3),
        episode(question="q2"),
        episode(question="q3"),
        episode(malformed=(0,), sample=4),
    ]
    made = list(sft_episodes(given, PROBLEMS, SftSetConfig(per_question=1)))
    assert [o.reason if isinstance(o, Rejection) else o.key.sample for o in made] == [
        0,
        "enough",
        "incorrect",
        "no_evidence",
        "held_out",
        "unknown_question",
        "malformed",
    ]
    assert {o.reason for o in made if isinstance(o, Rejection)} <= set(REASONS)


def test_pairs_set_right_against_wrong_of_one_question_and_use_no_episode_twice():
    given = [right(0), right(1), wrong(2), wrong(3), wrong(4), episode(evidence=(), sample=5)]
    made = list(make_pairs(given, PROBLEMS, PairsConfig(per_question=9)))
    pairs = [o for o in made if isinstance(o, Pair)]
    assert [(p.chosen.answer.text, p.rejected.answer.text) for p in pairs] == [("Vesk", "Oslo")] * 2
    used = [side.key.sample for p in pairs for side in (p.chosen, p.rejected)]
    assert len(set(used)) == 4
    assert sorted(o.reason for o in made if isinstance(o, Rejection)) == ["no_right", "unproved"]
    assert made == list(make_pairs(given, PROBLEMS, PairsConfig(per_question=9)))


LOOKS_TWICE = [call_turn(0, "a"), call_turn(1), final_turn()]
LOOKS_AND_ERRS = [call_turn(0, "a"), call_turn(1), final_turn("Oslo")]


def test_nobody_learns_from_a_wrong_answer_after_an_outage():
    spoiled = episode(LOOKS_AND_ERRS, answer="Oslo", sample=1, unavailable=(0,))
    (outcome,) = sft_episodes([spoiled], PROBLEMS, SftSetConfig())
    assert (outcome.reason, outcome.evidence) == ("unavailable", (" ".join(HITS.split()),))
    made = list(make_pairs([right(0), spoiled], PROBLEMS, PairsConfig()))
    assert [o.reason for o in made] == ["unavailable", "no_wrong"]
    fine = episode(LOOKS_TWICE, sample=2, unavailable=(0,))
    assert list(sft_episodes([fine], PROBLEMS, SftSetConfig())) == [fine]


@pytest.mark.parametrize("spoiled", [wrong(1, malformed=(0,)), episode(answer=None, evidence=(), sample=1)])
def test_a_wrong_side_without_a_valid_answer_makes_no_pair(spoiled):
    assert not any(isinstance(o, Pair) for o in make_pairs([right(0), spoiled], PROBLEMS, PairsConfig()))


def test_length_does_not_choose():
    long = episode([call_turn(0, thought=" ".join(map(str, range(50)))), final_turn()], sample=1)
    for rights in ([right(0), long], [long, right(0)]):
        pairs = [o for o in make_pairs([*rights, wrong(2), wrong(3)], PROBLEMS, PairsConfig()) if isinstance(o, Pair)]
        assert {p.chosen.key.sample for p in pairs} == {0, 1}
    sides = lengths([p.chosen for p in pairs]), lengths([p.rejected for p in pairs])
    assert sides[0].mean_length > sides[1].mean_length
    assert sides[0].mean_turns == 2
    assert math.isnan(lengths([]).mean_length)


def test_a_pair_is_read_back_as_training_reads_it(tmp_path):
    pair = next(o for o in make_pairs([right(0), wrong(1)], PROBLEMS, PairsConfig()) if isinstance(o, Pair))
    append_record(tmp_path / "pairs.jsonl", "pair", pair.id, pair)
    read = next(read_records(tmp_path / "pairs.jsonl", TrainedPair))
    assert (read.question_id, read.chosen, read.rejected) == ("q1", right(0), wrong(1))


def test_the_ledger_counts_everything_once_and_survives_a_repeat(tmp_path):
    path = tmp_path / "rejections.jsonl"
    for _ in range(2):
        ledger = Ledger(path)
        ledger.keep("a")
        for key, reason in (("b", "no_tree"), ("c", "no_tree"), ("d", "idle_clue")):
            ledger.reject(Rejection(key, reason, {"n": 1}, ("seen",)))
    assert ledger.funnel == Funnel(1, {"no_tree": 2, "idle_clue": 1})
    assert [r.key for r in read_records(path, Rejection)] == ["b", "c", "d"]
    lines = funnel_table(ledger.funnel, ("no_tree", "not_unique")).split("\n")
    assert lines[2:6] == [
        "| candidates | | 4 | 100.0% |",
        "| no_tree | 2 | 2 | 50.0% |",
        "| not_unique | 0 | 2 | 50.0% |",
        "| idle_clue | 1 | 1 | 25.0% |",
    ]
