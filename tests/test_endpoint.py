"""Endpoints over real sockets: the retry layer, error classes, chat messages, native calls, token ids."""

import asyncio
import json
import random
from datetime import UTC, datetime

import pytest

from configs.errors import ConfigError, ContextOverflow, LLMError
from inference.agent import Agent, AgentConfig
from inference.llm.endpoint import RetryConfig, Transient, classify, retry_after_seconds, wait_seconds
from inference.llm.openai_chat import OpenAIChat, OpenAIChatConfig, messages, read_completion
from inference.llm.protocol import Completion, Prompt, Sampling, ToolSpec
from inference.llm.scripted_server import Reply, ScriptedServer
from inference.llm.vllm import read, request_body
from inference.tools.protocol import ToolResult
from inference.types import EpisodeKey, Finish, Node, Question, Role, StopReason, ToolCall, Usage

FAST = RetryConfig(tries=3, first_wait_seconds=0.001, try_seconds=2.0, deadline_seconds=5.0)
PROMPT = Prompt((Node(Role.USER, "Q"),), (None,))
SPEC = ToolSpec("echo", "Says it.", {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]})


def ask(script, *, retry=FAST, prompt=PROMPT, **changes):
    """(completion, request bodies) of one call of the real client to a server that follows `script`."""
    with ScriptedServer(script) as server:
        config = OpenAIChatConfig(
            base_url=server.base_url, model="scripted", retry=retry, **({"api_key_env": None} | changes)
        )

        async def once():
            llm = OpenAIChat(config, {"KEY": "s3cret"})
            try:
                return await llm.complete(prompt, Sampling(0.5, 0.9, 100, seed=3))
            finally:
                await llm.aclose()

        return asyncio.run(once()), server.requests


def in_turn(*turns):
    left = list(turns)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def test_a_completion_comes_back_with_its_usage():
    completion, (body,) = ask([Completion("hello", usage=Usage(7, 3, 2))], extra_body={"top_k": 5})
    assert completion == Completion("hello", usage=Usage(7, 3, 2))
    assert body == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Q"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 100,
        "seed": 3,
        "top_k": 5,
    }


@pytest.mark.parametrize(
    ("completion", "usage"),
    [
        (Completion("x" * 400), Usage(100, 0, 100, True)),
        (Completion("x" * 401), Usage(100, 0, 101, True)),
        (Completion("語" * 4), Usage(100, 0, 3, True)),
        (Completion("x" * 400, usage=Usage(7, 3)), Usage(7, 3, 100, True)),
        (Completion("x" * 400, usage=Usage(0, 0, 9)), Usage(100, 0, 9, True)),
        (Completion("x" * 400, usage=Usage(7, 3, 9)), Usage(7, 3, 9)),
        (Completion("x" * 40, finish=Finish.LENGTH), Usage(100, 0, 100, True)),
        (Completion("", (ToolCall("c", "echo", {"x": "y" * 383}),)), Usage(101, 0, 102, True)),
    ],
)
def test_what_the_endpoint_does_not_count_is_estimated(completion, usage):
    tools = (ToolSpec("ab", "c", {"type": "efg"}),) if completion.calls else ()
    prompt = Prompt((Node(Role.USER, "q" * (396 if not tools else 384)),), (None,), tools)
    assert ask([completion], prompt=prompt)[0].usage == usage


def test_a_token_budget_ends_an_episode_at_an_endpoint_that_counts_nothing():
    with ScriptedServer(lambda body: "<think>" + "word " * 80) as server:
        config = AgentConfig(name="a", system_prompt="s", tools=(), episode_tokens=250)
        llm = OpenAIChat(OpenAIChatConfig(base_url=server.base_url, model="m", api_key_env=None, retry=FAST))
        agent = Agent(config, llm, [])
        episode = asyncio.run(agent.run(Question("q", "?"), EpisodeKey("q")))
    assert episode.stop is StopReason.TOKEN_BUDGET
    assert episode.turns == 3
    assert episode.usage.estimated


BROKEN = [
    Reply(500, {"error": "boom"}),
    Reply(429, {"error": "slow down"}),
    Reply(200, {"choices": None, "error": {"message": "provider died"}}),
    Reply(200, {"choices": []}),
    Reply(200, {"choices": [{"message": {"content": "half"}, "finish_reason": None}]}),
    Reply(200, {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}),
    Reply(200, "not an object"),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_what_may_pass_is_tried_again(broken):
    completion, bodies = ask(in_turn(broken, broken, "fine"))
    assert completion.text == "fine"
    assert len(bodies) == 3
    assert bodies[0] == bodies[2]


@pytest.mark.parametrize("broken", BROKEN)
def test_what_does_not_pass_is_an_llm_error(broken):
    with pytest.raises(LLMError, match="tried 3 times"):
        ask(in_turn(broken))


def test_retry_after_is_a_lower_bound():
    times = []

    def script(body):
        times.append(asyncio.get_running_loop().time())
        return Reply(429, {}, {"Retry-After": "0.3"}) if len(times) == 1 else "fine"

    assert ask(script)[0].text == "fine"
    assert times[1] - times[0] >= 0.3


def test_a_wait_beyond_the_deadline_is_not_begun():
    requests = []

    def script(body):
        requests.append(body)
        return Reply(429, {}, {"Retry-After": "3600"})

    with pytest.raises(LLMError, match="tried 1 times"):
        ask(script)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(400, {"error": {"code": "context_length_exceeded", "message": "x"}}), ContextOverflow),
        (Reply(200, {"error": {"message": "maximum context length is 4096 tokens"}}), ContextOverflow),
        (Reply(400, {"error": {"message": "bad field"}}), LLMError),
        (Reply(401, {"error": {"message": "wrong key s3cret"}}), ConfigError),
        (Reply(404, {"error": {"message": "no such model"}}), ConfigError),
        (Reply(429, {"error": {"code": "insufficient_quota"}}), LLMError),
    ],
)
def test_what_no_retry_mends_is_told_at_once(reply, kind):
    requests = []

    def script(body):
        requests.append(body)
        return reply

    with pytest.raises(kind) as caught:
        ask(script, api_key_env="KEY")
    assert len(requests) == 1
    assert "s3cret" not in str(caught.value)


def test_an_unreachable_endpoint_is_an_llm_error():
    with ScriptedServer(["x"]) as server:
        url = server.base_url
    llm = OpenAIChat(OpenAIChatConfig(base_url=url, model="m", api_key_env=None, retry=FAST))
    with pytest.raises(LLMError, match=r"127\.0\.0\.1.*ConnectError"):
        asyncio.run(llm.complete(PROMPT, Sampling()))


def test_a_missing_key_names_its_variable():
    with pytest.raises(ConfigError, match="MY_KEY"):
        OpenAIChat(OpenAIChatConfig(base_url="http://127.0.0.1/v1", model="m", api_key_env="MY_KEY"), {"MY_KEY": " "})


def test_a_cut_turn_is_a_completion():
    completion, _ = ask([Completion("half a", finish=Finish.LENGTH)])
    assert completion.finish is Finish.LENGTH


@pytest.mark.parametrize(
    ("text", "overflow"),
    [
        ("This model's maximum context length is 4096 tokens. However, you requested 5000", True),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens)", True),
        ("prompt is too long: 210000 tokens > 200000 maximum", True),
        ("the request exceeds the available context size (2048 tokens)", True),
        ("Please reduce the length of the messages", True),
        ("input length and `max_tokens` exceed context limit", True),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096", True),
        ("Input token count (5000) exceeds the maximum number of tokens allowed (4096)", True),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", False),
        ("temperature must be in [0, 2]", False),
        ("the context of the message is not understood", False),
    ],
)
def test_context_wordings(text, overflow):
    assert (classify(400, text).kind is ContextOverflow) is overflow


@pytest.mark.parametrize(
    ("status", "kind"), [(408, Transient), (409, Transient), (425, Transient), (503, Transient), (418, LLMError)]
)
def test_statuses(status, kind):
    assert classify(status, "").kind is kind


def test_waits_grow_are_jittered_and_bounded():
    retry = RetryConfig(first_wait_seconds=1.0, longest_wait_seconds=10.0)
    draw = random.Random(0).random
    for failures, ceiling in [(1, 1.0), (2, 2.0), (3, 4.0), (5, 10.0), (50, 10.0)]:
        waits = [wait_seconds(retry, failures, None, draw()) for _ in range(50)]
        assert ceiling / 2 <= min(waits) < max(waits) <= ceiling
    assert wait_seconds(retry, 1, 30.0, 0.5) == 30.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5.0), ("-1", 0.0), ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0), ("soon", None), (None, None)],
)
def test_retry_after_forms(value, seconds):
    now = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
    assert retry_after_seconds({} if value is None else {"retry-after": value}, now) == seconds


CALL = ToolCall("call_0_0", "echo", {"x": "é"})
TALK = (
    Node(Role.SYSTEM, "S"),
    Node(Role.USER, "Q"),
    Node(Role.ASSISTANT, "T", calls=(CALL, CALL)),
    Node(Role.TOOL, "long result", call_id="call_0_0"),
    Node(Role.TOOL, "r2", call_id="call_0_1"),
    Node(Role.USER, "feedback"),
)
LIMITS = (None, None, None, 1, 0, None)


def test_native_messages():
    out = messages(Prompt(TALK, LIMITS, (SPEC,)))
    assert [m["role"] for m in out] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert out[2]["content"] == "T"
    assert json.loads(out[2]["tool_calls"][0]["function"]["arguments"]) == {"x": "é"}
    assert out[3] == {"role": "tool", "tool_call_id": "call_0_0", "content": "long"}
    assert "omitted" in out[4]["content"]
    assert messages(Prompt(TALK, LIMITS)) == out  # the forced turn offers no tools, and the calls keep their results


def test_text_messages():
    markup = '<tool_call>\n{"name": "echo"}\n</tool_call>'
    nodes = (*TALK[:2], Node(Role.ASSISTANT, markup, calls=(CALL,)), *TALK[3:])
    out = messages(Prompt(nodes, LIMITS))
    assert [m["role"] for m in out] == ["system", "user", "assistant", "user", "user"]
    assert out[2]["content"] == markup
    assert out[3]["content"].startswith("<tool_response>\nlong\n</tool_response>\n<tool_response>\nTool result is")
    native = messages(Prompt(nodes, LIMITS, (SPEC,)))
    assert (native[2]["content"], len(native[2]["tool_calls"])) == (None, 1)


def reply_with(**message):
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}


def test_reasoning_is_folded_into_the_text():
    assert read_completion(reply_with(content="A", reasoning_content=" R\n")).text == "<think>\nR\n</think>\nA"
    assert read_completion(reply_with(content=None, reasoning="R")).text == "<think>\nR\n</think>\n"
    assert read_completion(reply_with(content="<think>R</think>A", reasoning="R")).text == "<think>R</think>A"


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [('{"x": "1"}', {"x": "1"}), ({"x": "1"}, {"x": "1"}), ("", {}), (None, {}), ("{'x': '1'}", {"x": "1"})],
)
def test_native_arguments(arguments, parsed):
    item = {"id": "i", "function": {"name": "echo", "arguments": arguments}}
    (call,) = read_completion(reply_with(content=None, tool_calls=[item])).calls
    assert (call.name, call.arguments) == ("echo", parsed)


def test_unreadable_native_arguments_become_a_text_call():
    item = {"id": "i", "function": {"name": "echo", "arguments": "x is 1"}}
    completion = read_completion(reply_with(content="T", tool_calls=[item]))
    assert completion.calls == ()
    assert completion.text == 'T\n<tool_call>\n{"name": "echo", "arguments": x is 1}\n</tool_call>'


def test_content_in_parts_and_counts_that_are_none():
    reply = reply_with(content=[{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "B"}])
    assert read_completion(reply).text == "AB"
    for usage in ("much", {"prompt_tokens": "many", "prompt_tokens_details": [1], "completion_tokens": 2.5}):
        assert read_completion(reply | {"usage": usage}).usage == Usage(0, 0, 0)


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {"choices": "x"},
        {"choices": {"a": 1}},
        {"choices": [1]},
        {"choices": [{"finish_reason": ["stop"], "message": {"content": "x"}}]},
        {"choices": [{"finish_reason": "stop", "message": "x"}]},
        *(
            {"choices": [{"finish_reason": "stop", "message": message}]}
            for message in (
                {"content": 5},
                {"content": [{"type": "image"}]},
                {"tool_calls": "x"},
                {"tool_calls": [None]},
                {"tool_calls": [{"function": "x"}]},
            )
        ),
    ],
)
def test_a_reply_of_another_form_is_asked_for_again(reply):
    with pytest.raises(Transient):
        read_completion(reply)


class Echo:
    spec = SPEC

    async def call(self, arguments):
        return ToolResult(f"heard {arguments['x']}")


@pytest.mark.parametrize("calls", ["text", "native"])
def test_the_agent_runs_over_http(calls):
    first = {
        "text": '<tool_call>\n{"name": "echo", "arguments": {"x": "hi"}}\n</tool_call>',
        "native": Completion("", (ToolCall("n1", "echo", {"x": "hi"}),)),
    }[calls]
    agent_config = AgentConfig(name="a", system_prompt="{tools}", tools=("echo",), calls=calls)
    with ScriptedServer([first, "\\boxed{hi}"]) as server:
        llm = OpenAIChat(OpenAIChatConfig(base_url=server.base_url, model="scripted", api_key_env=None, retry=FAST))
        episode = asyncio.run(Agent(agent_config, llm, [Echo()]).run(Question("q", "Q"), EpisodeKey("q")))
        last = server.requests[-1]
    assert (episode.stop, episode.answer.text) == (StopReason.ANSWERED, "hi")
    assert ("tools" in last) is (calls == "native")
    assert last["messages"][-1]["role"] == ("tool" if calls == "native" else "user")
    assert "heard hi" in last["messages"][-1]["content"]


def test_a_spent_script_says_so():
    with pytest.raises(LLMError, match="the script has 0 turns"):
        ask([])


def test_token_requests_and_replies():
    body = request_body("m", [1, 2], Sampling(1.0, 1.0, 9, seed=4))
    assert (body["prompt"], body["seed"], body["return_token_ids"], body["logprobs"]) == ([1, 2], 4, True, 0)
    choice = {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.5, -0.1]}, "finish_reason": "length"}
    completion = read({"choices": [choice], "usage": {"prompt_tokens_details": {"cached_tokens": 1}}}, 8)
    assert (completion.token_ids, completion.logprobs) == ((5, 6), (-0.5, -0.1))
    assert (completion.finish, completion.cached_tokens, completion.policy_version) == (Finish.LENGTH, 1, 8)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"token_ids": None}, LLMError),
        ({"token_ids": [5]}, LLMError),
        ({"logprobs": None}, LLMError),
        ({"finish_reason": "abort"}, Transient),
        ({"token_ids": ["5", "6"]}, LLMError),
        ({"token_ids": 5}, LLMError),
        ({"logprobs": [1]}, LLMError),
        ({"logprobs": {"token_logprobs": [None, -0.1]}}, LLMError),
    ],
)
def test_token_replies_that_cannot_be_used(change, kind):
    choice = {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.5, -0.1]}, "finish_reason": "stop"} | change
    with pytest.raises(kind):
        read({"choices": [choice]})
