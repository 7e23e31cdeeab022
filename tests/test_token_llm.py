"""Token in, token out: the loop over a token engine, in process and over HTTP."""

import asyncio

import pytest

from inference.agent import Agent, AgentConfig, SamplingConfig
from inference.llm.endpoint import RetryConfig
from inference.llm.protocol import Prompt, Sampling, TokenCompletion, ToolSpec
from inference.llm.render import ChatMLRenderer
from inference.llm.scripted_server import Reply, ScriptedServer
from inference.llm.token_llm import TokenLLM
from inference.llm.vllm import VLLMConfig, VLLMEngine
from inference.tools.protocol import ToolResult
from inference.types import EpisodeKey, Finish, Node, Question, Role, StopReason
from tests.chatml_tokenizer import write_tokenizer


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    return ChatMLRenderer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


class SpellingEngine:
    """Says its texts letter by letter, as a sampling model may; never as the tokenizer would split them."""

    def __init__(self, renderer, texts):
        self.renderer, self.texts, self.prompts = renderer, list(texts), []

    async def generate(self, prompt_ids, sampling):
        self.prompts.append(list(prompt_ids))
        ids = [i for letter in self.texts[len(self.prompts) - 1] for i in self.renderer.encode(letter)]
        cut = len(ids) >= sampling.max_tokens
        ids = ids[: sampling.max_tokens] if cut else [*ids, self.renderer.turn_end_id]
        return TokenCompletion(
            tuple(ids), tuple(-0.01 * i for i in range(len(ids))), Finish.LENGTH if cut else Finish.STOP
        )


class Echo:
    spec = ToolSpec("echo", "", {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]})

    async def call(self, arguments):
        return ToolResult(arguments["x"] * 20)


def holds(ids, part):
    return any(tuple(ids[i : i + len(part)]) == part for i in range(len(ids)))


def spoken(x):
    return f'{{"name": "echo", "arguments": {{"x": "{x}"}}}}'


def test_each_action_stands_in_every_later_context_token_for_token(renderer):
    calls = [f"<tool_call>{spoken(x)}</tool_call>" for x in "abc"]
    engine = SpellingEngine(renderer, [*calls, "x" * 999, "\\boxed{c}"])
    preset = AgentConfig(
        name="t", system_prompt="S", tools=("echo",), sampling=SamplingConfig(max_tokens=80), view={"window": 1}
    )
    llm = TokenLLM(engine, renderer)
    episode = asyncio.run(Agent(preset, llm, [Echo()]).run(Question("q", "Q"), EpisodeKey("q")))
    (trajectory,) = episode.tries
    assert (episode.stop, episode.answer.text) == (StopReason.ANSWERED, "c")
    for step, sent in zip(trajectory.steps, engine.prompts, strict=True):
        nodes = [trajectory.nodes[item.node] for item in step.view]
        limits = [item.limit for item in step.view]
        assert renderer.prompt_ids(nodes, limits) == sent
        assert llm.count(Prompt(tuple(nodes), tuple(limits))) == step.usage.prompt_tokens == len(sent)
    sampled = [trajectory.nodes[step.completion] for step in trajectory.steps]
    assert [node.text for node in sampled[:3]] == calls
    assert sampled[3].token_ids[-1] != renderer.turn_end_id  # cut
    for node in sampled[:-1]:
        assert holds(engine.prompts[-1], node.token_ids)
        assert len(node.logprobs) == len(node.token_ids)


def test_the_context_is_counted_before_it_is_sent(renderer):
    calls = [f"<tool_call>{spoken(x)}</tool_call>" for x in "abcdefgh"]
    engine = SpellingEngine(renderer, [*calls, *calls])
    preset = AgentConfig(
        name="t",
        system_prompt="S",
        tools=("echo",),
        sampling=SamplingConfig(max_tokens=80),
        context_tokens=400,
        max_retries=0,
    )
    episode = asyncio.run(Agent(preset, TokenLLM(engine, renderer), [Echo()]).run(Question("q", "Q"), EpisodeKey("q")))
    assert episode.stop is StopReason.CONTEXT
    assert 2 < len(engine.prompts) < 8
    assert max(map(len, engine.prompts)) <= 320


def test_the_vllm_engine_sends_and_returns_ids(renderer):
    said = renderer.encode("Bremont")
    choice = {"token_ids": said, "logprobs": {"token_logprobs": [-0.1] * len(said)}, "finish_reason": "length"}
    with ScriptedServer(lambda body: Reply(200, {"choices": [choice]})) as server:
        config = VLLMConfig(base_url=server.base_url, model="m", tokenizer_file="-", retry=RetryConfig(tries=1))
        llm = TokenLLM(VLLMEngine(config), renderer)
        prompt = Prompt((Node(Role.USER, "Q"),), (None,))
        completion = asyncio.run(llm.complete(prompt, Sampling(seed=1)))
    assert server.requests[0]["prompt"] == renderer.prompt_ids(prompt.nodes, prompt.limits)
    assert (completion.text, completion.token_ids, completion.finish) == ("Bremont", tuple(said), Finish.LENGTH)
