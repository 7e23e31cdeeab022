"""The whole agent on scripted models and real in-memory tools: both loops, forced answers, replay after a crash."""

import asyncio
from dataclasses import replace

import pytest

from configs.errors import ConfigError, ContextOverflow, LLMError, StorageError, ToolUnavailable
from configs.loader import PACKAGED, load
from inference.agent import Agent, AgentConfig, SamplingConfig, ViewConfig, system_text
from inference.journal import Journal
from inference.llm.protocol import Completion, Prompt, ToolSpec
from inference.llm.scripted import ScriptedLLM
from inference.tools.protocol import ToolResult
from inference.types import EpisodeKey, Evidence, Finish, Question, Role, StopReason, ToolCall, Usage
from inference.view import PLACEHOLDER

QUESTION, KEY = Question("q", "What is the capital of Avaland?"), EpisodeKey("q", 0, 7)
MORE = " Much more is said on this page than anyone asked for."
PAGES = {f"http://a.example/{i}": f"Page {i}\nThe capital of Land{i} is City{i}.{MORE}" for i in range(9)}


class Reader:
    """Reads a page; some addresses fail in every way a tool can."""

    spec = ToolSpec(
        "read",
        "Reads a page.",
        {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    )

    def __init__(self):
        self.read = []

    async def call(self, arguments):
        url = arguments["url"]
        self.read.append(url)
        if url == "down":
            raise ToolUnavailable("no connection to reader.example")
        if url == "bug":
            raise KeyError("surprise")
        if url == "hang":
            await asyncio.sleep(60)
        if url == "slow model":
            raise LLMError("the model that reads pages failed")
        if url == "too long":
            raise ContextOverflow("the page does not fit")
        if url == "fatal":
            raise ConfigError("set READER_KEY")
        # the later page comes back first
        await asyncio.sleep(0.002 * (10 - int(url[-1])) if url[-1].isdigit() else 0)
        return ToolResult(PAGES[url]) if url in PAGES else ToolResult(f"No page {url}.", is_error=True)


def call(*urls):
    return "\n".join(f'<tool_call>\n{{"name": "read", "arguments": {{"url": "{u}"}}}}\n</tool_call>' for u in urls)


def page(i):
    return f"http://a.example/{i}"


def link(i, city=None):
    return f'- The capital of Land{i} is {city or f"City{i}"} | "The capital of Land{i} is City{i}" | {page(i)}\n'


def box(text):
    return f"\\boxed{{{text}}}"


def config(**changes):
    base = {
        "name": "test",
        "system_prompt": "Tools: {tools}.",
        "tools": ("read",),
        "max_turns": 4,
        "max_retries": 0,
        "final_prompt": "Answer now.",
    }
    return AgentConfig(**(base | changes))


def run(script, tools=None, journal=None, clock=None, **changes):
    llm = script if hasattr(script, "complete") else ScriptedLLM(script)
    timed = {} if clock is None else {"clock": clock}
    agent = Agent(config(**changes), llm, tools or [Reader()], **timed)
    return asyncio.run(agent.run(QUESTION, KEY, journal))


def texts(trajectory, role):
    return [node.text for node in trajectory.nodes if node.role is role]


def test_a_run_from_question_to_answer():
    llm = ScriptedLLM([call(page(1)), "<think>done</think>\n" + link(1) + box("City1")])
    episode = run(llm)
    assert (episode.stop, episode.answer.text, episode.answer.forced) == (StopReason.ANSWERED, "City1", False)
    assert episode.answer.evidence == (
        Evidence("The capital of Land1 is City1", "The capital of Land1 is City1", page(1)),
    )
    (trajectory,) = episode.tries
    assert [str(n.role) for n in trajectory.nodes] == ["system", "user", "assistant", "tool", "assistant"]
    assert trajectory.nodes[0].text == "Tools: read(url)."
    assert trajectory.nodes[3].call_id == trajectory.nodes[2].calls[0].id
    assert [(s.completion, s.results) for s in trajectory.steps] == [(2, (3,)), (4, ())]
    assert episode.meta["agent"] == "test"


def test_every_prompt_can_be_replayed_from_its_view():
    llm = ScriptedLLM([call(page(i)) for i in range(6)] + ["no call", box("x")])
    (trajectory,) = run(llm, max_turns=9, view=ViewConfig(window=2, cut=9)).tries
    for step, (prompt, _) in zip(trajectory.steps, llm.asked, strict=True):
        assert prompt.nodes == tuple(trajectory.nodes[item.node] for item in step.view)
        assert prompt.limits == tuple(item.limit for item in step.view)
    assert [i.limit for i in trajectory.steps[5].view] == [None, None, *[None, 0] * 3, *[None, 9] * 2]


def test_an_answer_on_the_last_turn_counts():
    episode = run([call(page(1)), call(page(2)), box("late")], max_turns=3)
    assert (episode.stop, episode.answer.text, episode.answer.forced) == (StopReason.ANSWERED, "late", False)


def test_the_last_try_is_asked_for_its_answer():
    llm = ScriptedLLM([call(page(1))] * 4 + [link(1) + box("City1")])
    episode = run(llm)
    assert (episode.stop, episode.answer.text, episode.answer.forced) == (StopReason.MAX_TURNS, "City1", True)
    (trajectory,) = episode.tries
    assert trajectory.nodes[-2].text == "Answer now."
    assert trajectory.answer == episode.answer
    assert len(trajectory.steps) == 5


@pytest.mark.parametrize("last", ["No idea.", box("?"), call(page(1))])
def test_without_a_forced_answer_the_best_supported_one_stands(last):
    turns = [
        call(page(1)) + link(1) + box("seen too early"),  # page 1 was not read yet
        call(page(2)) + link(1) + link(2, "Elsewhere") + box("half supported"),
        call(page(3)) + link(1) + link(2) + box("well supported"),
        call(page(4)) + link(3, "Nowhere") + box("last but unsupported"),
    ]
    episode = run([*turns, last])
    assert (episode.answer.text, episode.answer.forced) == ("well supported", True)
    assert run(turns, final_prompt=None).answer == episode.answer


def test_nothing_to_fall_back_on_is_no_answer():
    episode = run(["hm"] * 5)
    assert (episode.stop, episode.answer) == (StopReason.MAX_TURNS, None)


def test_a_new_try_starts_from_the_bare_question():
    llm = ScriptedLLM(lambda prompt, sampling: call(page(len(llm.asked) % 3)))
    episode = run(llm, max_turns=3, max_retries=2, final_prompt=None)
    assert [t.stop for t in episode.tries] == [StopReason.MAX_TURNS] * 3
    for attempt in range(3):
        prompts = [prompt.nodes for prompt, _ in llm.asked[3 * attempt : 3 * attempt + 3]]
        assert [len(nodes) for nodes in prompts] == [2, 4, 6]
        assert prompts[0] == llm.asked[0][0].nodes
    assert len({sampling.seed for _, sampling in llm.asked}) == 9


def test_no_guess_before_the_last_try():
    episode = run([call(page(1)) + box("early")] * 2 + [call(page(1)), box("second try")], max_turns=2, max_retries=1)
    assert [t.answer and t.answer.text for t in episode.tries] == [None, "second try"]
    assert episode.answer.text == "second try"


def test_format_errors_in_a_row_end_a_try_and_a_good_call_forgives_them():
    turns = ["hm", call("nowhere"), "hm", "<tool_call>?</tool_call>", '<tool_call>{"name": "fly"}</tool_call>']
    episode = run([*turns, box("forced")], max_turns=9, max_format_errors=3)
    (trajectory,) = episode.tries
    assert (trajectory.stop, len(trajectory.steps)) == (StopReason.FORMAT, 6)
    assert [step.malformed for step in trajectory.steps] == [False, False, False, True, True, False]
    assert episode.answer.text == "forced"


def test_what_was_wrong_is_told():
    turns = ["hm", box("?"), "<tool_call>?</tool_call>", '<tool_call>{"name": "fly"}</tool_call>', box("x")]
    (trajectory,) = run(turns, max_turns=9).tries
    feedback = texts(trajectory, Role.USER)[1:]
    assert [needle in text for needle, text in zip(["neither", "placeholder", "not valid JSON"], feedback, strict=True)]
    (result,) = [node for node in trajectory.nodes if node.role is Role.TOOL]
    assert result.is_error
    assert result.text == "There is no tool 'fly'. Tools: read(url: string)"


def test_parallel_results_stand_in_call_order_each_with_its_call():
    reader = Reader()
    turn = call(page(5), page(1), "nowhere", page(3)) + '<tool_call>{"name": "fly"}</tool_call>'
    (trajectory,) = run([turn, box("x")], [reader]).tries
    assistant, results = trajectory.nodes[2], trajectory.nodes[3:8]
    assert [node.call_id for node in results] == [c.id for c in assistant.calls]
    assert [node.text.split("\n")[0] for node in results] == [
        "Page 5",
        "Page 1",
        "No page nowhere.",
        "Page 3",
        "There is no tool 'fly'. Tools: read(url: string)",
    ]
    assert [node.is_error for node in results] == [False, False, True, False, True]
    assert trajectory.steps[0].results == (3, 4, 5, 6, 7)


def test_a_cut_turn_runs_nothing():
    reader = Reader()
    cut = Completion(call(page(1)) + box("cut"), finish=Finish.LENGTH)
    (trajectory,) = run([cut, box("x")], [reader]).tries
    assert reader.read == []
    assert (trajectory.nodes[2].calls, trajectory.nodes[3].role) == ((), Role.USER)
    assert trajectory.steps[0].malformed


@pytest.mark.parametrize(
    ("url", "told"), [("down", "no connection"), ("bug", "KeyError"), ("hang", "no result within 0.02 s")]
)
def test_a_failing_tool_is_told_to_the_model(url, told):
    (trajectory,) = run([call(url, page(1)), box("x")], tool_seconds=0.02).tries
    failed, fine = trajectory.nodes[3:5]
    assert failed.is_error
    assert told in failed.text
    assert fine.text == PAGES[page(1)]


@pytest.mark.parametrize(
    ("said", "unavailable"),
    [
        (call("down"), True),
        (call("bug"), True),
        (call("hang"), True),
        (call("slow model"), True),
        (call("too long"), False),
        (call("http://nowhere.example"), False),
        (call(page(1)), False),
        ('<tool_call>{"name": "read", "arguments": {}}</tool_call>', False),
        ('<tool_call>{"name": "write", "arguments": {}}</tool_call>', False),
    ],
)
def test_an_outage_is_marked_apart_from_what_the_call_did(said, unavailable):
    episode = run([said + call(page(2)), box("x")], tool_seconds=0.05)
    failed, fine = (node for node in episode.tries[0].nodes if node.role is Role.TOOL)
    assert failed.unavailable is unavailable
    assert failed.is_error or failed.text == PAGES[page(1)]
    assert not fine.unavailable
    assert episode.outages == (((0, 0),) if unavailable else ())
    assert (episode.failure == failed.text) is unavailable
    assert episode.stop is StopReason.ANSWERED


def test_what_the_user_must_mend_in_a_tool_ends_the_run():
    with pytest.raises(ConfigError, match="READER_KEY"):
        run([call(page(1), "fatal"), box("x")])


@pytest.mark.parametrize("error", [LLMError("endpoint down"), ValueError("strange\nreply")])
def test_a_failing_llm_is_an_errored_episode_and_never_an_answer(error):
    episode = run([call(page(1)) + box("x"), error], max_turns=2)
    assert (episode.stop, episode.answer) == (StopReason.ERRORED, None)
    assert "\n" not in episode.error
    assert str(error).split()[0] in episode.error
    assert episode.tries[0].stop is StopReason.ERRORED


class Counted(ScriptedLLM):
    """Counts a token a character of what the view shows."""

    def count(self, prompt: Prompt) -> int:
        return sum(
            len(PLACEHOLDER if limit == 0 else node.text)
            for node, limit in zip(prompt.nodes, prompt.limits, strict=True)
        )


def test_a_prompt_that_does_not_fit_ends_the_try_and_is_blanked_for_the_answer():
    llm = Counted([call(page(i)) for i in range(3)] + [box("x")])
    nodes_that_fit = Counted([]).count(Prompt(*_conversation(3)))
    episode = run(
        llm,
        max_turns=9,
        view=ViewConfig(window=None),
        sampling=SamplingConfig(max_tokens=50),
        context_tokens=nodes_that_fit + 50 - 1,
    )
    (trajectory,) = episode.tries
    assert (trajectory.stop, episode.answer.text) == (StopReason.CONTEXT, "x")
    assert len(llm.asked) == 4
    assert {item.limit for item in trajectory.steps[-1].view} == {None, 0}


def _conversation(turns):
    (trajectory,) = run([call(page(i)) for i in range(turns)] + [box("x")], max_turns=9).tries
    nodes = trajectory.nodes[:-1]
    return nodes, (None,) * len(nodes)


def test_an_overflow_told_by_the_endpoint_is_a_limit():
    episode = run([ContextOverflow("too long")] * 3 + [box("x")], max_retries=1)
    assert [t.stop for t in episode.tries] == [StopReason.CONTEXT] * 2
    assert (episode.answer, episode.stop) == (replace(episode.answer, text="x", forced=True), StopReason.CONTEXT)


def test_the_token_budget_ends_the_episode_without_another_call():
    llm = ScriptedLLM([Completion(call(page(1)) + box("held"), usage=Usage(5, 0, 60))] * 9)
    episode = run(llm, episode_tokens=100, max_turns=2, max_retries=5)
    assert [t.stop for t in episode.tries] == [StopReason.TOKEN_BUDGET]
    assert (len(llm.asked), episode.answer.text, episode.answer.forced) == (2, "held", True)
    assert episode.usage == Usage(10, 0, 120)


def test_the_deadline_ends_the_episode():
    times = iter(range(0, 1000, 4))
    episode = run([call(page(1))] * 9, clock=lambda: float(next(times)), deadline_seconds=20.0, max_turns=9)
    assert episode.stop is StopReason.DEADLINE
    assert episode.answer is None
    assert 1 <= episode.turns < 9


def test_native_calls_are_offered_and_answered():
    llm = ScriptedLLM([Completion("T", (ToolCall("native", "read", {"url": page(1)}),)), box("x")])
    (trajectory,) = run(llm, calls="native").tries
    assert [prompt.tools for prompt, _ in llm.asked] == [(Reader.spec,)] * 2
    assert trajectory.nodes[3].text == PAGES[page(1)]
    assert not trajectory.steps[0].malformed


class Crash(BaseException):
    """As a SIGKILL would: nothing may catch it."""


class Mortal:
    """Plays its script by the size of the conversation and dies at a chosen call."""

    def __init__(self, turns, die_at=None):
        self.turns, self.die_at, self.calls = turns, die_at, 0

    async def complete(self, prompt, sampling):
        self.calls += 1
        if self.calls == self.die_at:
            raise Crash
        said = sum(node.role is Role.ASSISTANT for node in prompt.nodes)
        return Completion(self.turns[said], token_ids=(said,), logprobs=(-0.5,), usage=Usage(1, 0, 1))


class MortalReader(Reader):
    def __init__(self, die_at):
        super().__init__()
        self.die_at = die_at

    async def call(self, arguments):
        result = await super().call(arguments)
        if len(self.read) == self.die_at:
            raise Crash
        return result


# two tries of three turns and a forced answer: 7 completions, 6 of them with calls
TURNS = [call(page(1)), call(page(2), page(3)), "hm " + call(page(4)), link(1) + box("City1")]
PLAN = {"max_turns": 3, "max_retries": 1}


@pytest.mark.parametrize("die_at", range(1, 8))
def test_after_a_crash_in_the_llm_no_call_is_repeated(tmp_path, die_at):
    whole = run(Mortal(TURNS), **PLAN)
    mortal, reader = Mortal(TURNS, die_at), Reader()
    with pytest.raises(Crash):
        run(mortal, [reader], Journal(tmp_path / "j"), **PLAN)
    again = Mortal(TURNS)
    episode = run(again, [reader], Journal(tmp_path / "j"), **PLAN)
    assert replace(episode, seconds=0.0) == replace(whole, seconds=0.0)
    assert mortal.calls - 1 + again.calls == 7
    assert sorted(reader.read) == sorted([page(1), page(2), page(3), page(4)] * 2)


@pytest.mark.parametrize("die_at", [1, 4, 8])
def test_after_a_crash_in_a_tool_no_completion_is_repeated(tmp_path, die_at):
    whole = run(Mortal(TURNS), **PLAN)
    first, again = Mortal(TURNS), Mortal(TURNS)
    with pytest.raises(Crash):
        run(first, [MortalReader(die_at)], Journal(tmp_path / "j"), **PLAN)
    episode = run(again, journal=Journal(tmp_path / "j"), **PLAN)
    assert replace(episode, seconds=0.0) == replace(whole, seconds=0.0)
    assert first.calls + again.calls == 7


def test_an_errored_episode_goes_on_from_the_step_that_failed(tmp_path):
    journal = Journal(tmp_path / "j")
    failing = ScriptedLLM([TURNS[0], TURNS[1], LLMError("down")])
    assert run(failing, journal=journal, **PLAN).stop is StopReason.ERRORED
    again = Mortal(TURNS)
    assert run(again, journal=journal, **PLAN).answer.text == "City1"
    assert again.calls == 5


def test_a_finished_episode_replays_without_any_call(tmp_path):
    journal = Journal(tmp_path / "j")
    whole = run(Mortal(TURNS), journal=journal, **PLAN)
    again = Mortal(TURNS)
    assert replace(run(again, journal=journal, **PLAN), seconds=0.0) == replace(whole, seconds=0.0)
    assert again.calls == 0


def test_the_clock_goes_on_after_a_crash(tmp_path):
    def ticking():
        times = iter(range(0, 1000, 2))
        return lambda: float(next(times))

    with pytest.raises(Crash):
        run(Mortal(TURNS, 3), journal=Journal(tmp_path / "j"), clock=ticking(), deadline_seconds=1e6, **PLAN)
    episode = run(Mortal(TURNS), journal=Journal(tmp_path / "j"), clock=ticking(), deadline_seconds=1.0, **PLAN)
    assert (episode.stop, episode.turns) == (StopReason.DEADLINE, 2)


def test_a_full_disk_ends_the_run(tmp_path):
    full = tmp_path / "j"
    journal = Journal(full)
    full.symlink_to("/dev/full")
    with pytest.raises(StorageError):
        run([call(page(1)), box("x")], journal=journal)


def test_a_missing_tool_is_named():
    with pytest.raises(ConfigError, match="no tool write; there are: read"):
        Agent(config(tools=("read", "write")), ScriptedLLM([]), [Reader()])


@pytest.mark.parametrize("name", ["mirothinker", "embedded"])
def test_presets_describe_their_tools(name):
    preset = load(AgentConfig, [PACKAGED / "agents" / f"{name}.yaml"], environ={})
    specs = [ToolSpec(tool, "D.", {"required": ["x"]}) for tool in preset.tools]
    text = system_text(preset, specs)
    assert all(tool in text for tool in preset.tools)
    assert "{tools}" not in text
    if name == "embedded":
        assert len(text.split()) <= 40


def test_the_presets_constants():
    paper = load(AgentConfig, [PACKAGED / "agents" / "mirothinker.yaml"], environ={})
    sampling, view = paper.sampling, paper.view
    assert (paper.max_turns, paper.max_retries, view.window, view.slack) == (200, 5, 5, 0)
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (1.0, 0.95, 16384)
    assert paper.context_tokens == 262144
