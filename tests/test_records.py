"""Records: round trips, torn lines, bad lines, surrogates, failed writes."""

import json

import pytest

from configs.errors import InputError, StorageError
from inference.records import append_record, read_keys, read_records
from inference.types import (
    Answer,
    Episode,
    EpisodeKey,
    Evidence,
    Finish,
    Node,
    Role,
    Step,
    StopReason,
    ToolCall,
    Trajectory,
    Usage,
    ViewItem,
)

EPISODE = Episode(
    EpisodeKey("q/1", 2, 3),
    (
        Trajectory(
            (
                Node(Role.USER, "é\n\x85\u2028"),
                Node(
                    Role.ASSISTANT,
                    "t",
                    calls=(ToolCall("c0", "search", {"q": ["x", 1, None]}, repaired="closed a brace"),),
                    token_ids=(1, 2),
                    logprobs=(-0.1, -2.5e-7),
                ),
                Node(Role.TOOL, "r", call_id="c0", is_error=True),
            ),
            (Step((ViewItem(0), ViewItem(2, 0)), 1, (2,), True, Finish.LENGTH, Usage(3, 2, 1), 7),),
            StopReason.MAX_TURNS,
            Answer("42", (Evidence("c", "q", "s"),), forced=True),
        ),
    ),
    StopReason.MAX_TURNS,
    meta={"agent": "a"},
)


def test_a_record_comes_back_equal(tmp_path):
    path = tmp_path / "episodes.jsonl"
    append_record(path, "episode", "a", EPISODE)
    append_record(path, "note", "b", EvidenceLike)
    append_record(path, "episode", "c", EPISODE)
    assert list(read_records(path, Episode, kind="episode")) == [EPISODE, EPISODE]
    assert read_keys(path, kind="episode") == {"a", "c"}
    line = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert (line["schema"], line["kind"], line["key"]) == (1, "episode", "a")


EvidenceLike = Evidence("c", "q", "s")


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_dropped_and_mended_by_the_next_write(tmp_path, cut):
    path = tmp_path / "r.jsonl"
    append_record(path, "node", "a", Node(Role.USER, "kept"))
    append_record(path, "node", "b", Node(Role.USER, "torn" * 100))
    path.write_bytes(path.read_bytes()[:-cut])
    assert [node.text for node in read_records(path, Node)] == ["kept"]
    append_record(path, "node", "c", Node(Role.USER, "next"), fsync=True)
    assert [node.text for node in read_records(path, Node)] == ["kept", "next"]


def test_a_torn_line_longer_than_a_block_is_cut_off(tmp_path):
    path = tmp_path / "r.jsonl"
    append_record(path, "node", "a", Node(Role.USER, "kept"))
    with path.open("ab") as file:
        file.write(b"x" * 200_000)
    append_record(path, "node", "b", Node(Role.USER, "next"))
    assert [node.text for node in read_records(path, Node)] == ["kept", "next"]


@pytest.mark.parametrize(
    ("text", "stored"),
    [("a\ud800b", "a\ufffdb"), ("\ud83c\udf78", "🍸"), ("\udc00", "\ufffd"), ("plain é", "plain é")],
)
def test_lone_surrogates_are_replaced(tmp_path, text, stored):
    path = tmp_path / "r.jsonl"
    append_record(path, "node", text, Node(Role.ASSISTANT, text, calls=(ToolCall("c", "f", {text: [text]}),)))
    (node,) = read_records(path, Node)
    assert (node.text, node.calls[0].arguments) == (stored, {stored: [stored]})
    assert read_keys(path) == {stored}


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        '{"schema": 1, "kind": "node", "key": "a"}',
        '{"schema": 2, "kind": "node", "key": "a", "data": {"role": "user", "text": "x"}}',
        '{"schema": 1, "kind": "node", "key": "a", "data": {"role": "nobody", "text": "x"}}',
    ],
)
def test_a_bad_line_is_named(tmp_path, line):
    path = tmp_path / "r.jsonl"
    append_record(path, "node", "a", Node(Role.USER, "good"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"r\.jsonl:2"):
        list(read_records(path, Node))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.jsonl"):
        list(read_records(tmp_path / "none.jsonl", Node))
    assert read_keys(tmp_path / "none.jsonl") == set()


def test_a_full_disk_is_a_storage_error():
    from pathlib import Path

    with pytest.raises(StorageError, match="/dev/full"):
        append_record(Path("/dev/full"), "node", "a", Node(Role.USER, "x"))
