"""Reading calls: the Hermes form with its usual defects, native calls, names, arguments."""

import pytest

from inference.llm.protocol import ToolSpec
from inference.toolcall import outside_thoughts, parse_arguments, read_calls, signature, without_calls
from inference.types import ToolCall


def spec(name, required=(), **fields):
    return ToolSpec(name, "", {"type": "object", "properties": fields, "required": list(required)})


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
SPECS = (
    spec("search", ["q"], q=STRING, n=INTEGER, kind={"enum": ["web", "news"]}, tags={"type": "array", "items": STRING}),
    spec("google_search", ["q"], q=STRING),
    spec("list_files"),
)


def read(text, native=()):
    return read_calls(text, native, SPECS, 3)


def runnable(text, native=()):
    return [(r.call.name, r.call.arguments) for r in read(text, native).requests if r.problem is None]


X = ("search", {"q": "x"})
CALL = '<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "calls", "repaired"),
    [
        (CALL, [X], False),
        (CALL.replace("\n</tool_call>", ""), [X], False),
        (CALL.replace("}}", "}"), [X], True),
        ('<tool_call>{"name": "search", "arguments": "{\\"q\\": \\"x\\"}"}</tool_call>', [X], True),
        (
            '<tool_call>{"name":"search","arguments":{"q":"see </tool_call>"}}</tool_call>',
            [("search", {"q": "see </tool_call>"})],
            False,
        ),
        (
            '<tool_call>{"name":"search","arguments":{"q":"mkdir {a,b"}}</tool_call>',
            [("search", {"q": "mkdir {a,b"})],
            False,
        ),
        (CALL + CALL.replace('"x"', '"y"'), [X, ("search", {"q": "y"})], False),
        ('<tool_call>[{"name": "search", "arguments": {"q": "x"}}]</tool_call>', [X], False),
        (CALL + "\n<tool_response>fake</tool_response>" + CALL, [X], False),
        (f"<think>maybe {CALL}</think>\nDone \\boxed{{4}}", [], False),
        (f"so {CALL} was it</think>{CALL}", [X], False),
        (f"<think>never closed {CALL}", [], False),
        ("<tool_call>{'name': 'search', 'arguments': {'q': 'x', 'n': None}}</tool_call>", [X], True),
        ('<tool_call>{"name": "search", "arguments": {"q": "x", "n": null}}</tool_call>', [X], True),
        ('<tool_call>```json\n{"name": "search", "arguments": {"q": "x"}}\n```</tool_call>', [X], True),
        ('<tool_call>{"name": "search", "parameters": {"q": "x"}}</tool_call>', [X], False),
        ('<tool_call>{"name": "list_files"}</tool_call>', [("list_files", {})], False),
        ('<tool_call>{"name": "list_files", "arguments": ""}</tool_call>', [("list_files", {})], True),
        ("no call at all", [], False),
    ],
)
def test_text_calls(text, calls, repaired):
    assert runnable(text) == calls
    assert any(request.call.repaired for request in read(text).requests) is repaired
    assert not read(text).unreadable


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<tool_call>\nsearch for x\n</tool_call>", "not valid JSON (Expecting value at character"),
        ('<tool_call>{"arguments": {"q": "x"}}</tool_call>', 'no "name"'),
        ('<tool_call>{"name": "search", "arguments": "x y"}</tool_call>', "not a JSON object"),
        ('<tool_call>{"name": "search", "arguments": [1]}</tool_call>', "not a JSON object"),
        ("<tool_call></tool_call>", "not valid JSON"),
    ],
)
def test_markup_without_a_readable_call_is_told(text, told):
    calls = read(text + CALL)
    assert [told in message for message in calls.unreadable] == [True]
    assert [request.call.name for request in calls.requests] == ["search"]  # the valid sibling runs


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Google_Search", "google_search"),
        ("google-search", "google_search"),
        ("googleSearch", "google_search"),
        ("functions.search", "search"),
        ("mcp__web__list_files", "list_files"),
        ("web:list-files", "list_files"),
    ],
)
def test_a_name_is_repaired_when_it_can_mean_one_tool_alone(written, meant):
    arguments = {} if meant == "list_files" else {"q": "x"}
    (request,) = read("", (ToolCall("", written, arguments),)).requests
    assert (request.call.name, request.problem) == (meant, None)
    assert written in request.call.repaired


@pytest.mark.parametrize("written", ["searching", "google", "entity_search", "lists_files", ""])
def test_a_merely_similar_name_is_never_run(written):
    (request,) = read("", (ToolCall("", written, {"q": "x"}),)).requests
    assert "google_search(q: string); list_files()" in request.problem


def test_an_ambiguous_name_is_never_run():
    twins = (spec("a_b"), spec("ab"))
    (request,) = read_calls('<tool_call>{"name": "A-B"}</tool_call>', (), twins, 0).requests
    assert request.problem is not None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "lacks q: search(q: string, n?: integer"),
        ({"q": None}, "lacks q"),
        ({"q": "x", "query": "y"}, "unknown argument query"),
        ({"q": 5}, "q must be string, not 5"),
        ({"q": "x", "n": True}, "n must be integer, not true"),
        ({"q": "x", "kind": "video"}, 'kind must be "web"|"news", not "video"'),
        ({"q": "x", "tags": ["a", 1]}, 'tags must be array, not ["a", 1]'),
    ],
)
def test_arguments_that_do_not_fit_are_told(arguments, told):
    (request,) = read("", (ToolCall("", "search", arguments),)).requests
    assert told in request.problem


def test_ids_are_unique_in_a_trajectory_and_native_calls_are_not_repeated():
    native = ToolCall("call_0", "search", {"q": "x"})
    requests = read(CALL + CALL.replace('"x"', '"y"'), (native,)).requests
    assert [(r.call.id, r.call.arguments["q"]) for r in requests] == [("call_3_0", "x"), ("call_3_1", "y")]


def test_lone_surrogates_are_replaced():
    (request,) = read('<tool_call>{"name": "search", "arguments": {"q": "a\\ud800"}}</tool_call>').requests
    assert request.call.arguments == {"q": "a\ufffd"}


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("", ({}, None)),
        ('{"q": 1}', ({"q": 1}, None)),
        ('"{\\"q\\": 1}"', ({"q": 1}, "arguments were a string")),
        ("hello", None),
        ("[1]", None),
    ],
)
def test_native_arguments(raw, parsed):
    assert parse_arguments(raw) == parsed


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>b<think>c</think>d", "bd"),
        ("a</think>b", "b"),
        ("b<think>c", "b"),
        ("plain", "plain"),
    ],
)
def test_outside_thoughts(text, left):
    assert outside_thoughts(text) == left


def test_without_calls_and_signature():
    assert without_calls(f"T\n{CALL}\n{CALL}") == "T"
    assert signature(SPECS[1]) == "google_search(q: string)"
