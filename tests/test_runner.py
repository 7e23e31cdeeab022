"""The runner: order, resumption, retries and cancellation, with an agent that is scripted here."""

import asyncio
import random

import pytest

from configs.errors import InputError, LLMError, RunFailed, StorageError, ToolUnavailable
from inference.agent import Agent, AgentConfig
from inference.journal import TryEnd
from inference.llm.protocol import ToolSpec
from inference.llm.scripted import ScriptedLLM
from inference.tools.protocol import ToolResult
from inference.types import Answer, Episode, EpisodeKey, Question, Role, StopReason
from rollout_env.judge import ExactJudge, errored
from rollout_env.problem import Gold, Problem
from rollout_env.runner import EPISODES, JOURNAL, Retry, met_failure, read_episodes, rollout

QUESTIONS = [Question(f"q{i}", f"{i}?") for i in range(4)]


class ScriptedAgent:
    """Answers each key with itself; the first `failures[key]` attempts at a key fail with `error` instead."""

    def __init__(self, failures=None, error=None, shuffle=None):
        self.failures = dict(failures or {})
        self.error = error or LLMError("no answer from the endpoint")
        self.rng = random.Random(shuffle)
        self.asked = []
        self.running = self.most = 0

    async def run(self, question, key, journal=None):
        self.asked.append(str(key))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if journal is not None:
                journal.append(key, TryEnd(0, 0, StopReason.ANSWERED))
            for _ in range(self.rng.randrange(1, 5)):
                await asyncio.sleep(0)
            if self.failures.get(str(key), 0):
                self.failures[str(key)] -= 1
                raise self.error
            return Episode(key, (), StopReason.ANSWERED, Answer(str(key)))
        finally:
            self.running -= 1


def play(agent, out=None, **options):
    options = {"samples": 2, "seed": 7, "concurrency": 3} | options
    return asyncio.run(rollout(QUESTIONS, agent=agent, out=out, **options))


KEYS = [f"q{i}/{s}/7" for i in range(4) for s in range(2)]


@pytest.mark.parametrize("concurrency", [1, 3, 50])
@pytest.mark.parametrize("shuffle", [0, 1])
def test_results_come_in_input_order_whatever_finishes_first(concurrency, shuffle):
    agent = ScriptedAgent(shuffle=shuffle)
    assert [e.answer.text for e in play(agent, concurrency=concurrency)] == KEYS
    assert agent.most == min(concurrency, len(KEYS))


def test_a_failure_is_retried_and_then_kept_as_errored(tmp_path):
    agent = ScriptedAgent({"q0/0/7": 2, "q1/0/7": 3})
    heard = []
    episodes = play(agent, tmp_path, on_episode=heard.append)
    assert [agent.asked.count(key) for key in ("q0/0/7", "q1/0/7", "q2/0/7")] == [3, 3, 1]
    assert [str(e.key) for e in episodes] == KEYS
    assert [str(e.key) for e in episodes if e.stop is StopReason.ERRORED] == ["q1/0/7"]
    assert episodes[2].error == "no answer from the endpoint"
    assert sorted(str(e.key) for e in heard) == KEYS
    assert list(read_episodes(tmp_path).values()) == heard


def test_an_errored_episode_that_is_returned_counts_like_one_that_is_raised():
    class Returns(ScriptedAgent):
        async def run(self, question, key, journal=None):
            try:
                return await super().run(question, key)
            except LLMError as error:
                return Episode(key, (), StopReason.ERRORED, error=str(error))

    agent = Returns({"q0/0/7": 1})
    assert play(agent)[0].stop is StopReason.ANSWERED
    assert agent.asked.count("q0/0/7") == 2


@pytest.mark.parametrize("error", [RuntimeError("a bug"), StorageError("disk full"), KeyboardInterrupt()])
def test_after_an_interruption_the_same_call_does_the_rest(tmp_path, error):
    broken = ScriptedAgent({"q2/1/7": 1}, error)
    with pytest.raises(type(error)):
        play(broken, tmp_path, concurrency=1)
    assert broken.running == 0
    assert [str(key) for key in read_episodes(tmp_path)] == KEYS[:5]

    with (tmp_path / EPISODES).open("a", encoding="utf-8") as file:
        file.write('{"schema": 1, "kind": "episode", "key": "q2/1')  # a torn line
    agent = ScriptedAgent()
    assert [e.answer.text for e in play(agent, tmp_path)] == KEYS
    assert sorted(agent.asked) == KEYS[5:]

    again = ScriptedAgent()
    assert [e.answer.text for e in play(again, tmp_path)] == KEYS
    assert not again.asked


def test_a_rerun_tries_errored_episodes_again(tmp_path):
    play(ScriptedAgent({"q1/1/7": 3}), tmp_path)
    agent = ScriptedAgent()
    assert all(e.stop is StopReason.ANSWERED for e in play(agent, tmp_path))
    assert agent.asked == ["q1/1/7"]
    assert all(e.stop is StopReason.ANSWERED for e in read_episodes(tmp_path).values())


def test_another_seed_is_another_episode(tmp_path):
    play(ScriptedAgent(), tmp_path)
    agent = ScriptedAgent()
    play(agent, tmp_path, seed=8)
    assert len(agent.asked) == len(KEYS)
    assert len(read_episodes(tmp_path)) == 2 * len(KEYS)


SPEC = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
LOOK = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


class Flaky:
    """Fails on the calls that `down` numbers, all tools of a run together."""

    spec = SPEC

    def __init__(self, down):
        self.down, self.called = down, 0

    async def call(self, arguments):
        self.called += 1
        if self.called - 1 in self.down:
            raise ToolUnavailable("no connection")
        return ToolResult("found")


def looks_twice(prompt, sampling):
    """Looks, looks again, and answers by what came of it."""
    seen = [node for node in prompt.nodes if node.role is Role.TOOL]
    return LOOK if len(seen) < 2 else "\\boxed{wrong}" if any(node.is_error for node in seen) else "\\boxed{right}"


def play_flaky(down, out=None, gold="right", script=looks_twice, **retry):
    """(the one episode, calls of the tool, calls of the model)."""
    llm, tool = ScriptedLLM(script), Flaky(down)
    config = AgentConfig(name="a", system_prompt="s", tools=("look",), max_retries=0)
    has_failed = errored([Problem(QUESTIONS[0], Gold((gold,)))], ExactJudge())
    run = rollout(
        QUESTIONS[:1],
        samples=1,
        agent=Agent(config, llm, [tool]),
        seed=7,
        concurrency=1,
        out=out,
        retry=Retry(**{"errored": has_failed} | retry),
    )
    (episode,) = asyncio.run(run)
    return episode, tool.called, len(llm.asked)


@pytest.mark.parametrize(
    ("down", "on_disk", "tools", "asked"),
    [
        (set(), True, 2, 3),
        ({1}, True, 3, 4),  # only the failed call is made again, and only the answer sampled again
        ({0}, True, 4, 5),
        ({1, 2}, True, 4, 5),
        ({1}, False, 4, 6),
    ],
)
def test_after_an_outage_a_rollout_goes_on_from_the_call_that_failed(tmp_path, down, on_disk, tools, asked):
    episode, *counts = play_flaky(down, tmp_path if on_disk else None)
    assert (episode.answer.text, episode.outages, counts) == ("right", (), [tools, asked])


def test_an_outage_that_lasts_is_kept_shown_and_tried_again_by_a_rerun(tmp_path):
    episode, *counts = play_flaky({1, 2}, tmp_path, times=1)
    assert (episode.answer.text, episode.outages, counts) == ("wrong", ((0, 1),), [3, 4])
    assert read_episodes(tmp_path)[episode.key] == episode
    again, *counts = play_flaky(set(), tmp_path)
    assert (again.answer.text, again.outages, counts) == ("right", (), [1, 1])
    assert play_flaky(set(), tmp_path)[1:] == (0, 0)
    assert not (tmp_path / JOURNAL).read_text(encoding="utf-8")


def test_a_right_answer_in_spite_of_an_outage_stands(tmp_path):
    episode, *counts = play_flaky({1}, tmp_path, gold="wrong")
    assert (episode.answer.text, counts) == ("wrong", [2, 3])
    assert play_flaky(set(), tmp_path, gold="wrong")[1:] == (0, 0)


def test_without_a_judge_every_outage_is_tried_again():
    assert play_flaky({1}, gold="wrong", errored=met_failure)[0].answer.text == "right"


def test_tools_that_are_down_end_the_run():
    config = AgentConfig(name="a", system_prompt="s", tools=("look",), max_retries=0)
    agent = Agent(config, ScriptedLLM(looks_twice), [Flaky(range(999))])
    with pytest.raises(RunFailed, match=r"The tool is unavailable now \(no connection\)"):
        play(agent, samples=9, retry=Retry(0))


def test_cancellation_leaves_nothing_running(tmp_path):
    class Waits(ScriptedAgent):
        """Finishes q0 and then never."""

        waiting, both = 0, asyncio.Event()

        async def run(self, question, key, journal=None):
            if question.id == "q0":
                return await super().run(question, key)
            self.running += 1
            self.waiting += 1
            if self.waiting == 2:
                self.both.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.running -= 1

    agent = Waits()

    async def cancel():
        run = asyncio.create_task(rollout(QUESTIONS, samples=1, agent=agent, seed=7, concurrency=2, out=tmp_path))
        await agent.both.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancel())
    assert agent.running == 0
    assert [key.question_id for key in read_episodes(tmp_path)] == ["q0"]


def test_an_outage_ends_the_run_in_one_line_and_keeps_what_finished(tmp_path):
    agent = ScriptedAgent({f"q{i}/{s}/7": 9 for i in range(1, 4) for s in range(9)})
    with pytest.raises(RunFailed, match=r"no answer from the endpoint.*goes on"):
        play(agent, tmp_path, samples=9, retry=Retry(times=0), concurrency=1)
    assert len(agent.asked) == 9 + 10
    assert sum(e.stop is StopReason.ANSWERED for e in read_episodes(tmp_path).values()) == 9


def test_the_journal_forgets_what_is_finished_and_keeps_the_rest(tmp_path):
    play(ScriptedAgent({"q3/1/7": 3}), tmp_path)
    lines = (tmp_path / JOURNAL).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3
    assert all('"q3/1/7"' in line for line in lines)


def test_duplicate_questions_are_refused():
    with pytest.raises(InputError, match="duplicate"):
        asyncio.run(rollout([QUESTIONS[0]] * 2, samples=1, agent=ScriptedAgent(), seed=0, concurrency=1))


def test_the_agent_is_handed_its_question_and_key():
    class Looks(ScriptedAgent):
        async def run(self, question, key, journal=None):
            assert key == EpisodeKey(question.id, key.sample, 7)
            return await super().run(question, key)

    assert len(play(Looks())) == len(KEYS)
