"""The journal: what is committed survives, finished episodes go, torn lines do no harm."""

import pytest

from inference.journal import EpisodeLog, Journal, Results, Rewind, Sampled, TryEnd
from inference.llm.protocol import Completion
from inference.types import EpisodeKey, Finish, Node, Role, StopReason, ToolCall, Usage, ViewItem

A, B = EpisodeKey("a/b", 0, 1), EpisodeKey("b", 1, 1)
COMPLETION = Completion("t", (ToolCall("c", "f", {"q": [1]}),), Finish.LENGTH, (1, 2), (-0.5, -1e-9), Usage(3, 1, 2), 4)


def sampled(attempt, step, seconds=1.0):
    return Sampled(attempt, step, (ViewItem(0), ViewItem(3, 0)), COMPLETION, seconds)


def results(attempt, step):
    return Results(attempt, step, (Node(Role.TOOL, f"{attempt}.{step}", call_id="c"),), 2.5)


EVENTS = [sampled(0, 0), results(0, 0), TryEnd(0, 1, StopReason.FORMAT), sampled(1, 0)]


@pytest.fixture
def path(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    for event in EVENTS:
        journal.append(A, event)
        journal.append(B, event)
    return tmp_path / "journal.jsonl"


@pytest.mark.parametrize("fsync", [False, True])
def test_events_come_back_by_episode(path, fsync):
    journal = Journal(path, fsync=fsync)
    assert list(journal.steps(A)) == EVENTS
    journal.append(A, results(1, 0))
    assert list(journal.steps(A)) == [*EVENTS, results(1, 0)]
    assert list(journal.steps(B)) == EVENTS
    assert journal.steps(EpisodeKey("nobody")) == ()


def test_compaction_keeps_the_unfinished_and_goes_on(path):
    journal = Journal(path)
    journal.compact([A, EpisodeKey("nobody")])
    assert "a/b" not in path.read_text(encoding="utf-8")
    journal.append(B, results(1, 0))
    for reader in (journal, Journal(path)):
        assert list(reader.steps(B)) == [*EVENTS, results(1, 0)]
        assert reader.steps(A) == ()
    assert [file.name for file in path.parent.iterdir()] == ["journal.jsonl"]


@pytest.mark.parametrize("cut", [1, 50])
def test_a_torn_last_event_is_dropped(path, cut):
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(path)
    assert list(journal.steps(B)) == EVENTS[:-1]
    journal.append(B, EVENTS[-1])
    assert list(Journal(path).steps(B)) == EVENTS


def test_the_log_answers_each_place_once(path):
    log = EpisodeLog(Journal(path), A)
    assert log.seconds == 2.5
    assert log.replaying(0, 0)
    assert log.sampled(0, 0) == EVENTS[0]
    assert log.sampled(0, 0) is None
    assert not log.replaying(0, 0)
    assert log.results(0, 0) == EVENTS[1].nodes
    assert log.results(1, 0) is None
    assert log.end(0, 1) is StopReason.FORMAT
    assert log.end(0, 0) is None


def test_a_rewind_takes_back_the_results_of_its_step_and_all_that_followed(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    for event in (sampled(0, 0), results(0, 0), TryEnd(0, 1, StopReason.FORMAT), sampled(1, 0, 3.0)):
        journal.append(A, event)
    for event in (results(1, 0), sampled(1, 1, 9.0), results(1, 1), TryEnd(1, 2, StopReason.MAX_TURNS)):
        journal.append(A, event)
    journal.append(A, Rewind(1, 0))
    journal.append(B, sampled(1, 1))
    log = EpisodeLog(Journal(tmp_path / "journal.jsonl"), A)
    assert log.seconds == 3.0
    assert log.results(0, 0) is not None
    assert log.end(0, 1) is StopReason.FORMAT
    assert log.sampled(1, 0) is not None
    assert log.results(1, 0) is None
    assert log.sampled(1, 1) is None
    assert log.end(1, 2) is None
    assert EpisodeLog(journal, B).replaying(1, 1)
    journal.append(A, results(1, 0))
    assert EpisodeLog(journal, A).results(1, 0) is not None


def test_without_a_journal_nothing_is_on_record():
    log = EpisodeLog(None, A)
    log.commit(EVENTS[0])
    assert log.sampled(0, 0) is None
