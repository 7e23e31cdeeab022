"""The rollouts of an update: which questions, how they are sampled, and that they are read back after a crash."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import ConfigError, InputError
from inference.llm.protocol import TokenCompletion
from inference.llm.render import ChatMLRenderer
from inference.types import Finish, Question
from rollout_env.outcome import Outcome
from rollout_env.problem import Gold, Problem, write_problems
from tests.chatml_tokenizer import write_tokenizer
from training.rollouts import AgentRollouts, drawn, update_seed
from training.train_config import GrpoConfig

PAGE = {
    "url": "http://atlas.example/avaland",
    "title": "Avaland",
    "text": "The capital of Avaland is Bremont.",
    "links": [],
}


class Fixed:
    """An engine that always writes the same turn."""

    def __init__(self, ids):
        self.ids = tuple(ids)
        self.asked = []

    async def generate(self, prompt_ids, sampling):
        self.asked.append(sampling)
        return TokenCompletion(self.ids, (-0.5,) * len(self.ids), Finish.STOP)


def problem(name, answer="Bremont"):
    return Problem(Question(name, f"What is the capital of {name}?"), Gold((answer,)))


@given(total=st.integers(1, 30), count=st.integers(1, 30), seed=st.integers(0, 3))
def test_a_pass_draws_each_question_once_at_most_and_an_update_never_twice(total, count, seed):
    problems, count = [problem(str(i)) for i in range(total)], min(count, total)
    updates = total // count
    for start in (0, updates):
        one_pass = [p.question.id for u in range(start, start + updates) for p in drawn(problems, u, count, seed)]
        assert len(one_pass) == len(set(one_pass)) == updates * count


def test_seeds_and_orders_differ_from_update_to_update():
    problems = [problem(str(i)) for i in range(50)]
    assert len({update_seed(seed, update) for seed in range(3) for update in range(50)}) == 150
    assert drawn(problems, 0, 10, 0) != drawn(problems, 5, 10, 0) != drawn(problems, 0, 10, 1)


@pytest.fixture
def config(tmp_path):
    write_problems(tmp_path / "problems.jsonl", [problem("Avaland"), problem("Borland", "Nowhere")])
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "pages.jsonl").write_text(json.dumps(PAGE) + "\n", encoding="utf-8")

    def made(**more):
        values = {"agent": "embedded", "web": {"kind": "embedded", "corpus": str(tmp_path / "corpus")}}
        values |= {"model": "unused", "problems": str(tmp_path / "problems.jsonl"), "optimizer": {"lr": 1.0}}
        return GrpoConfig.model_validate_json(json.dumps(values | {"updates": 1, "questions": 2, "samples": 2} | more))

    return made


def test_rollouts_are_on_policy_judged_and_read_back(config, tmp_path):
    renderer = ChatMLRenderer(write_tokenizer(tmp_path))
    turn = '- The capital of Avaland is Bremont. | "Bremont" | http://atlas.example/avaland\n\\boxed{Bremont}'
    engine = Fixed([*renderer.encode(turn), renderer.turn_end_id])
    samples = asyncio.run(AgentRollouts(config(), tmp_path, renderer)(3, engine))
    assert {(s.temperature, s.top_p) for s in engine.asked} == {(1.0, 1.0)}
    assert len({s.seed for s in engine.asked}) == 4
    outcomes = {(s.problem.question.id, s.outcome) for s in samples}
    assert outcomes == {("Avaland", Outcome.CORRECT), ("Borland", Outcome.INCORRECT)}
    assert all(s.episode.tries[0].nodes[-1].token_ids == engine.ids for s in samples)
    again = asyncio.run(AgentRollouts(config(), tmp_path, renderer)(3, Fixed([0])))
    assert again == samples


def test_a_wrong_answer_after_an_outage_earns_nothing_and_is_tried_again(config, tmp_path):
    renderer = ChatMLRenderer(write_tokenizer(tmp_path))
    call = '<tool_call>\n{"name": "google_search", "arguments": {"q": "x"}}\n</tool_call>'
    turns = [[*renderer.encode(turn), renderer.turn_end_id] for turn in (call, "\\boxed{Bremont}")]

    class Searches(Fixed):
        async def generate(self, prompt_ids, sampling):
            self.ids = tuple(turns["unavailable" in renderer.decode(prompt_ids)])
            return await super().generate(prompt_ids, sampling)

    engine, nowhere = Searches(()), "http://127.0.0.1:9"
    web = {"kind": "serper_jina", "search_url": nowhere, "reader_url": nowhere, "fetch": {"retries": 0}}
    samples = asyncio.run(AgentRollouts(config(web=web, samples=1), tmp_path, renderer)(0, engine))
    found = {s.problem.question.id: (s.outcome, s.reward and s.reward.total) for s in samples}
    assert found == {"Avaland": (Outcome.CORRECT, 1.0), "Borland": (Outcome.ERRORED, None)}
    assert len(engine.asked) == 2 + (2 + 1 + 1)  # Borland goes on from its failed call, twice


@pytest.mark.parametrize(
    ("more", "error", "reason"),
    [
        ({"questions": 3}, InputError, "fewer problems than the 3 questions of one update"),
        ({"web": {"kind": "embedded"}}, ConfigError, r"web\.corpus"),
        ({"engine": {"context": 2000}}, ConfigError, r"engine\.context: below the agent's context_tokens"),
        ({"agent": "embeded"}, ConfigError, "the closest one is 'embedded'"),
    ],
)
def test_a_config_that_cannot_work_is_told_at_once(config, tmp_path, more, error, reason):
    with pytest.raises(error, match=reason):
        AgentRollouts(config(**more), tmp_path, ChatMLRenderer(write_tokenizer(tmp_path)))
