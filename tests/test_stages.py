"""The four stages on a tiny mixture of experts: what is scored, what resumes, what stops a run."""

import asyncio
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the train extra is not installed")

import torch

from configs.errors import InputError, RunFailed, UsageError
from inference.llm.protocol import Sampling
from inference.llm.render import ChatMLRenderer
from inference.records import append_record, read_records
from inference.types import Episode, EpisodeKey, Finish, Node, Question, Role, Step, StopReason, Trajectory, ViewItem
from inference.view import WindowView
from rollout_env.outcome import Outcome
from rollout_env.problem import Gold, Problem
from rollout_env.reward import Reward
from rollout_env.sample import Sample
from tests.chatml_tokenizer import write_tokenizer
from training import dpo, grpo, lm
from training.checkpoint import read_weights, save_model
from training.collate import collate
from training.dpo import DpoTrainer, PairRows, collate_pairs
from training.grpo import GrpoTrainer, collate_credited, credit, group_advantages
from training.lm import LmTrainer
from training.metrics import Metrics, read_metrics
from training.model import load_model, new_model, tiny_config
from training.rows import Pair, Refusal, Target, rows_from_episode, target_row
from training.scorer import add_scorer
from training.train_config import DpoConfig, GrpoConfig, LmConfig, OptimizerConfig
from training.trainer import Plan, rate_factor

VOCABULARY = 512
POLICY_ONLY = range(470, VOCABULARY)
"""Ids that no text is encoded to: where they stand, the policy wrote."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A model folder."""
    tokenizer = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(tokenizer)
    model = new_model(tiny_config(VOCABULARY, hidden_size=32, layers=2, experts=4), seed=0)
    folder = tmp_path_factory.mktemp("policy") / "model"
    save_model(model, folder, tokenizer_from=tokenizer)
    return folder


@pytest.fixture(scope="module")
def renderer(policy):
    return ChatMLRenderer(policy / "tokenizer.json")


# ---- what is scored ----


@st.composite
def episodes(draw, renderer, question="q", sample=0):
    """An episode whose turns are sampled from ids that no text has, seen through a narrow window."""
    view, nodes, steps = WindowView(window=draw(st.sampled_from([1, None]))), [Node(Role.USER, "find the river")], []
    for number in range(draw(st.integers(1, 4))):
        seen, finish = view(nodes), draw(st.sampled_from([Finish.STOP, Finish.LENGTH]))
        body = draw(st.lists(st.sampled_from(POLICY_ONLY), min_size=1, max_size=4))
        ids = (*body, renderer.turn_end_id) if finish is Finish.STOP else tuple(body)
        completion = len(nodes)
        nodes.append(Node(Role.ASSISTANT, "", token_ids=ids, logprobs=(-6.0,) * len(ids)))
        nodes.append(Node(Role.TOOL, draw(st.sampled_from(["the sea", "<|im_end|>", ""])), call_id=str(number)))
        steps.append(Step(seen, completion, (completion + 1,), finish=finish))
    tries = (Trajectory(tuple(nodes), tuple(steps), StopReason.ANSWERED),)
    return Episode(EpisodeKey(question, sample), tries, StopReason.ANSWERED)


def sampled_tokens(episode):
    return sum(len(t.nodes[s.completion].token_ids) for t in episode.tries for s in t.steps)


def scored_positions(model, batch, loss):
    """[B, T] bool: tokens whose prediction the loss depends on, from the gradient of the last hidden states."""
    hidden = []
    hook = model.base_model.register_forward_hook(lambda module, args, output: hidden.append(output.last_hidden_state))
    try:
        [gradient] = torch.autograd.grad(loss(), hidden)
    finally:
        hook.remove()
    return torch.nn.functional.pad(gradient.abs().sum(-1) > 0, (1, 0))[:, :-1]


def assert_only_written(model, batch, loss, renderer, expected):
    scored = scored_positions(model, batch, loss)
    ids = batch["input_ids"]
    before = torch.nn.functional.pad(ids, (1, 0))[:, :-1]
    written = (ids >= POLICY_ONLY.start) | ((ids == renderer.turn_end_id) & (before >= POLICY_ONLY.start))
    assert not (scored & ~written).any()
    assert int(scored.sum()) == expected


UNCLIPPED = {"clip_low": 0.99, "clip_high": 1e6, "kl_entropy": 0.1}
"""Recorded log-probabilities are made up here: a clip would leave some tokens without a gradient."""


@pytest.fixture(scope="module")
def trainers(policy, renderer, tmp_path_factory):
    """One trainer of each stage over the same weights, never run."""
    folder = tmp_path_factory.mktemp("trainers")
    common = {"model": policy, "optimizer": {"lr": 1e-3}, "router_balance": 0.0}
    data = common | {"data": ("unused",), "steps": 1}

    def made(kind, config, **options):
        model = load_model(policy, for_training=True)
        add_scorer(model)
        plan = Plan(1, lambda i: {})
        return kind(config, model, plan, folder, Metrics(folder / "metrics.jsonl"), steps=1, **options)

    return {
        "lm": made(LmTrainer, config_of(LmConfig, data | {"stage": "sft"})),
        "dpo": made(DpoTrainer, config_of(DpoConfig, data)),
        "grpo": made(GrpoTrainer, grpo_config(common, objective=UNCLIPPED), renderer=renderer),
    }


def config_of(kind, values):
    return kind.model_validate_json(json.dumps(values, default=str))


def grpo_config(values, **more):
    grpo = {"agent": "embedded", "web": {"kind": "embedded"}, "problems": "unused", "updates": 1, "questions": 1}
    return config_of(GrpoConfig, grpo | {"samples": 2, "objective": {"kl_entropy": 0.1}} | values | more)


PROPERTY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@PROPERTY
@given(data=st.data())
@pytest.mark.parametrize("stage", ["mid", "sft"])
def test_lm_scores_what_the_policy_wrote_and_no_observation(trainers, renderer, stage, data):
    trainer = trainers["lm"]
    batch_episodes = data.draw(st.lists(episodes(renderer), min_size=1, max_size=3))
    rows = [row for episode in batch_episodes for row in rows_from_episode(episode, renderer)]
    expected = sum(map(sampled_tokens, batch_episodes))
    if stage == "mid":  # the same contexts, the last turn of each to be written
        prompts = [episode.tries[0].nodes for episode in batch_episodes]
        rows = [target_row(Target("t", nodes, "sea"), renderer) for nodes in prompts]
        expected = sum(len(renderer.encode("sea")) + 1 for _ in prompts)
    batch = collate(rows)
    totals = trainer.denominators(batch)
    assert totals.item() == expected
    scored = scored_positions(trainer.model, batch, lambda: trainer.objective(trainer.model, batch, totals)[0].loss)
    assert torch.equal(scored, batch["trained"])
    if stage == "sft":
        loss = lambda: trainer.objective(trainer.model, batch, totals)[0].loss  # noqa: E731
        assert_only_written(trainer.model, batch, loss, renderer, expected)


@PROPERTY
@given(data=st.data())
def test_dpo_scores_what_the_policy_wrote_and_no_observation(trainers, renderer, data):
    trainer = trainers["dpo"]
    sides = data.draw(st.lists(st.tuples(episodes(renderer), episodes(renderer)), min_size=1, max_size=2))
    pairs = [PairRows("p", *(rows_from_episode(e, renderer) for e in pair)) for pair in sides]
    batch = collate_pairs(pairs)
    totals = trainer.denominators(batch)
    assert totals.tolist() == [len(sides), sum(sampled_tokens(chosen) for chosen, _ in sides)]
    expected = sum(sampled_tokens(e) for pair in sides for e in pair)
    loss = lambda: trainer.objective(trainer.model, batch, totals)[0].loss  # noqa: E731
    assert_only_written(trainer.model, batch, loss, renderer, expected)


@PROPERTY
@given(data=st.data())
def test_grpo_scores_what_the_policy_wrote_and_no_observation(trainers, renderer, data):
    trainer = trainers["grpo"]
    group = data.draw(st.lists(episodes(renderer), min_size=2, max_size=3))
    samples = [sample_of(episode, float(i == 0)) for i, episode in enumerate(group)]
    credited = credit(samples, renderer, trainer._grpo)
    total = sum(map(sampled_tokens, group))
    batch = collate_credited(credited)
    mass = (batch["trained"].sum(1) * batch["token_weights"]).sum()
    assert mass.item() == pytest.approx(1.0)
    # Rewards differ, so every token of every rollout has a gradient.
    assert_only_written(trainer.model, batch, lambda: trainer.share(trainer.model, batch, total), renderer, total)


def sample_of(episode, value, outcome=Outcome.CORRECT):
    reward = None if value is None else Reward(value, float(value > 0), 0.0)
    problem = Problem(Question(episode.key.question_id, "q"), Gold(("a",)))
    return Sample(problem, episode, outcome if reward else Outcome.ERRORED, None, reward)


@pytest.mark.parametrize("chunk_logits", [2**20, 3 * VOCABULARY])
def test_scores_are_those_of_the_full_logits(policy, renderer, chunk_logits):
    model = load_model(policy, for_training=True)
    rows = [target_row(Target("t", (Node(Role.USER, text),), "the sea"), renderer) for text in ("river", "is", "")]
    batch = collate(rows)
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.log_softmax(-1)
    add_scorer(model, chunk_logits=chunk_logits)
    scores = model(**{k: batch[k] for k in ("input_ids", "attention_mask", "trained")}, entropy=True, balance=True)
    where = batch["trained"][:, 1:]
    expected = logits[:, :-1][where].gather(1, batch["input_ids"][:, 1:][where][:, None])[:, 0]
    assert torch.allclose(scores.log_probs, expected, atol=1e-6)
    assert torch.allclose(scores.entropy, -(logits.exp() * logits).sum(-1)[:, :-1][where], atol=1e-5)
    assert scores.rows.tolist() == where.nonzero()[:, 0].tolist()
    real = [model(**one_row(row), balance=True).balance for row in rows]
    alone = model(**one_row(rows[0]), balance=True)
    assert torch.allclose(scores.log_probs[scores.rows == 0], alone.log_probs, atol=1e-6)
    assert min(real) - 0.5 < scores.balance < max(real) + 0.5  # padding has no part in it


def one_row(row):
    return {k: v for k, v in collate([row]).items() if k in ("input_ids", "attention_mask", "trained")}


def test_one_rollout_one_vote(renderer):
    rewards = {"a": [1.0, 0.0, None], "b": [None, None, None], "c": [0.5, None, None]}
    key = lambda q, i: Episode(EpisodeKey(q, i), (), StopReason.ANSWERED)  # noqa: E731
    samples = [sample_of(key(q, i), r) for q, group in rewards.items() for i, r in enumerate(group)]
    assert group_advantages(samples, by_std=False) == [0.5, -0.5, None, None, None, None, 0.0, None, None]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1 / 3, 2 / 3, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1 / 3, 2 / 3, 1.0, 0.8536, 0.5, 0.1464]),
    ],
)
def test_no_step_has_rate_zero(schedule, expected):
    config = OptimizerConfig(lr=1.0, schedule=schedule, warmup_steps=2)
    assert [rate_factor(i, steps=6, config=config) for i in range(6)] == pytest.approx(expected, abs=1e-4)


# ---- whole runs ----


def written_episode(renderer, answer, question="q", sample=0):
    """One turn: the question, and an answer with its ids."""
    ids = (*renderer.encode(answer), renderer.turn_end_id)
    nodes = (Node(Role.USER, f"the capital of {question}"), Node(Role.ASSISTANT, answer, token_ids=ids))
    attempt = Trajectory(nodes, (Step((ViewItem(0),), 1),), StopReason.ANSWERED)
    return Episode(EpisodeKey(question, sample), (attempt,), StopReason.ANSWERED)


QUESTIONS = ("river", "sea", "Avaland", "search")


def sft_run(policy, renderer, folder, **more):
    data = folder / "episodes.jsonl"
    if not data.exists():
        for question in QUESTIONS:
            episode = written_episode(renderer, f"{question} is the sea", question)
            append_record(data, "episode", str(episode.key), episode)
    values = {"stage": "sft", "model": policy, "data": [data], "optimizer": {"lr": 1e-2}, "batch_tokens": 60}
    config = config_of(LmConfig, values | {"steps": 6, "save_every": 2} | more)
    return lambda out, progress=None: lm.run(config, out, progress)


def mid_run(policy, renderer, folder, **more):
    data = folder / "targets.jsonl"
    if not data.exists():
        for question in QUESTIONS:
            append_record(data, "midtrain", question, Target(question, (Node(Role.USER, question),), "the sea"))
    values = {"stage": "mid", "model": policy, "data": [data], "optimizer": {"lr": 1e-2}, "batch_tokens": 60}
    config = config_of(LmConfig, values | {"steps": 6, "save_every": 2} | more)
    return lambda out, progress=None: lm.run(config, out, progress)


def dpo_run(policy, renderer, folder, **more):
    data = folder / "pairs.jsonl"
    if not data.exists():
        for question in QUESTIONS:
            chosen, rejected = (written_episode(renderer, text, question) for text in ("the sea", "search read"))
            append_record(data, "pair", question, Pair(question, question, chosen, rejected))
    values = {"model": policy, "data": [data], "optimizer": {"lr": 1e-2}, "batch_tokens": 150}
    config = config_of(DpoConfig, values | {"steps": 6, "save_every": 2} | more)
    return lambda out, progress=None: dpo.run(config, out, progress)


class FirstToken:
    """Rollouts of one turn; a rollout whose first token is in the lower half of the vocabulary earns 1."""

    def __init__(self, renderer, disturb=0.0, turn=4):
        self.renderer = renderer
        self.disturb = disturb
        self.turn = turn

    async def __call__(self, update, engine):
        jobs = [self.rollout(q, i, update, engine) for q in QUESTIONS[:2] for i in range(8)]
        return await asyncio.gather(*jobs)

    async def rollout(self, question, number, update, engine):
        user = Node(Role.USER, question)
        seed = hash((update, question[0] == "r", number))
        done = await engine.generate(
            self.renderer.prompt_ids((user,), (None,)), Sampling(1.0, 1.0, max_tokens=self.turn, seed=abs(seed))
        )
        assert done.policy_version == update
        logprobs = tuple(value + self.disturb for value in done.logprobs)
        node = Node(Role.ASSISTANT, "", token_ids=done.token_ids, logprobs=logprobs)
        attempt = Trajectory((user, node), (Step((ViewItem(0),), 1, finish=done.finish),), StopReason.ANSWERED)
        episode = Episode(EpisodeKey(question, number, update), (attempt,), StopReason.ANSWERED)
        return sample_of(episode, None if number == 7 else float(done.token_ids[0] < VOCABULARY // 2))


def grpo_run(policy, renderer, folder, disturb=0.0, turn=4, **more):
    values = {"model": policy, "optimizer": {"lr": 1e-2}, "updates": 6, "save_every": 2}
    engine = {"slots": 16, "context": 64}
    config = grpo_config(values, **({"batch_tokens": 200, "engine": engine} | more))
    return lambda out, progress=None: grpo.run(config, out, progress, source=FirstToken(renderer, disturb, turn))


RUNS = {"mid": mid_run, "sft": sft_run, "dpo": dpo_run, "grpo": grpo_run}


class Killed(BaseException):
    pass


def killed_at(step):
    def progress(done, total, values):
        if done == step:
            raise Killed

    return progress


def losses(out):
    return [(record["step"], record["loss"]) for record in read_metrics(out / "metrics.jsonl")]


def weights(folder, policy):
    return read_weights(type(load_model(policy, for_training=False)), folder, torch.float32)


@pytest.mark.parametrize("stage", RUNS)
def test_a_killed_run_ends_as_an_uninterrupted_one(policy, renderer, tmp_path, stage):
    run = RUNS[stage](policy, renderer, tmp_path)
    whole = run(tmp_path / "whole")
    for kill in (1, 5):
        with pytest.raises(Killed):
            run(tmp_path / "killed", killed_at(kill))
    torn = tmp_path / "killed" / "checkpoints" / "checkpoint-6"
    torn.mkdir()  # a checkpoint that the kill left half written
    resumed = run(tmp_path / "killed")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert [step for step, _ in losses(tmp_path / "whole")] == [1, 2, 3, 4, 5, 6]
    one, two, start = weights(whole, policy), weights(resumed, policy), weights(policy, policy)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert any("experts" in name and not torch.equal(one[name], start[name]) for name in one)
    assert (whole / "tokenizer.json").read_bytes() == (policy / "tokenizer.json").read_bytes()
    before = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert run(tmp_path / "whole", killed_at(1)) == whole  # done: nothing is trained again
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("stage", ["mid", "sft", "dpo"])
def test_training_lowers_the_loss(policy, renderer, tmp_path, stage):
    RUNS[stage](policy, renderer, tmp_path, steps=12)(tmp_path / "out")
    values = [loss for _, loss in losses(tmp_path / "out")]
    assert values[-1] < 0.7 * values[0]


def test_grpo_raises_the_reward_on_the_policy_it_samples_from(policy, renderer, tmp_path):
    grpo_run(policy, renderer, tmp_path, turn=1, updates=20, objective={"kl": 0.0}, optimizer={"lr": 0.05})(
        tmp_path / "out"
    )
    records = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert records[0]["reward"] < 0.8 < np.mean([r["reward"] for r in records[-3:]])
    assert max(record["mismatch"] for record in records) < 1e-5
    assert {(record["rollouts"], record["clean"]) for record in records} == {(16.0, 14.0)}
    assert 0 < records[0]["entropy"] < np.log(VOCABULARY) + 1e-3


def test_how_a_step_is_cut_does_not_change_it(policy, renderer, tmp_path):
    # Four rows of one step: in one micro-batch, and in several.
    results = []
    for name, more in {"one": {"batch_tokens": 400}, "four": {"batch_tokens": 1, "accumulate": 4}}.items():
        folder = sft_run(policy, renderer, tmp_path, epochs=1, steps=None, router_balance=0.0, **more)(tmp_path / name)
        [record] = read_metrics(tmp_path / name / "metrics.jsonl")
        results.append((record["loss"], record["grad_norm"], weights(folder, policy)))
    (loss, norm, one), (loss_cut, norm_cut, cut) = results
    assert loss == pytest.approx(loss_cut, rel=1e-5)
    assert norm == pytest.approx(norm_cut, rel=1e-4)
    assert max((one[name] - cut[name]).abs().max().item() for name in one) < 1e-3  # Adam's first step magnifies noise


# ---- what stops a run ----


def test_grpo_stops_before_the_step_when_engine_and_trainer_differ(policy, renderer, tmp_path):
    run = grpo_run(policy, renderer, tmp_path, disturb=0.01)
    with pytest.raises(RunFailed, match=r"update 0: engine and trainer differ by 0\.01"):
        run(tmp_path / "out")
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_gradient_above_the_limit_stops_the_run(policy, renderer, tmp_path, stage):
    run = RUNS[stage](policy, renderer, tmp_path, optimizer={"lr": 1e-2, "stop_above": 1e-6})
    with pytest.raises(RunFailed, match=r"step 1: gradient norm .* is above the limit"):
        run(tmp_path / "out")


def test_dpo_refuses_a_reference_that_is_not_where_it_starts(trainers, renderer):
    trainer = trainers["dpo"]
    pair = PairRows("p", *(rows_from_episode(written_episode(renderer, text), renderer) for text in ("sea", "read")))
    batch = collate_pairs([pair])
    other = load_model(trainer._config.model, for_training=True)
    add_scorer(other)
    with torch.no_grad():
        other.get_output_embeddings().weight.mul_(1.5)
    with pytest.raises(RunFailed, match="the reference is not the model dpo starts from"):
        trainer.objective(other, batch, trainer.denominators(batch))


def test_refused_rows_are_on_record_and_nothing_left_is_an_error(policy, renderer, tmp_path):
    run = sft_run(policy, renderer, tmp_path, max_tokens=20)
    lengths = [len(rows_from_episode(written_episode(renderer, f"{q} is the sea", q), renderer)[0]) for q in QUESTIONS]
    assert min(lengths) <= 20 < max(lengths)
    run(tmp_path / "some")
    refused = list(read_records(tmp_path / "some" / "refused.jsonl", Refusal))
    assert [r.reason.split(",")[0] for r in refused] == [f"{n} tokens" for n in lengths if n > 20]
    with pytest.raises(InputError, match="holds nothing that can be trained; the first of 4 refusals: river/0/0"):
        sft_run(policy, renderer, tmp_path, max_tokens=2)(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_data_that_changed_is_refused(policy, renderer, tmp_path):
    run = sft_run(policy, renderer, tmp_path)
    with pytest.raises(Killed):
        run(tmp_path / "out", killed_at(3))
    more = written_episode(renderer, "search", "sea", sample=1)
    append_record(tmp_path / "episodes.jsonl", "episode", str(more.key), more)
    with pytest.raises(InputError, match="has changed since the run"):
        run(tmp_path / "out")


@pytest.mark.parametrize("broken", ["model", "data", "deepspeed", "launcher"])
def test_bad_input_leaves_no_claim_on_the_folder(policy, renderer, tmp_path, broken):
    out = tmp_path / "out"
    sft_run(policy, renderer, tmp_path)
    (tmp_path / "nothing.json").write_text("[]", encoding="utf-8")
    (tmp_path / "stage1.json").write_text('{"zero_optimization": {"stage": 1}}', encoding="utf-8")
    wrong = {
        "model": {"model": tmp_path / "nothing"},
        "data": {"data": [tmp_path / "nothing.jsonl"]},
        "deepspeed": {"deepspeed": tmp_path / "nothing.json"},
        "launcher": {"deepspeed": tmp_path / "stage1.json"},
    }[broken]
    with pytest.raises(UsageError, match=r"nothing|needs a launcher"):
        sft_run(policy, renderer, tmp_path, **wrong)(out)
    assert not out.exists()
    assert sft_run(policy, renderer, tmp_path, steps=1)(out) == out / "model"
