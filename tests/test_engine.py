import asyncio
import random
import time

import numpy as np
import pytest

pytest.importorskip("torch", reason="the train extra is not installed")

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from configs.errors import ContextOverflow, InputError, LLMError
from inference.llm.protocol import Sampling
from inference.types import Finish
from training.attention import Segment, plan_step
from training.checkpoint import save_model
from training.engine import SlotEngine
from training.model import new_model, tiny_config
from training.sampler import Draws, sample, uniforms
from training.slots import SlotTable

VOCABULARY = 96
GREEDY = Sampling(temperature=0, top_p=1, max_tokens=24)


def tiny_model(seed=0):
    """Sharper than a fresh model, so that greedy choices are no near ties."""
    model = new_model(tiny_config(VOCABULARY, hidden_size=32, layers=2, experts=4), seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
    return model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def ids(count, seed=0):
    return random.Random(seed).choices(range(VOCABULARY), k=count)


def run(engine, main):
    """The value of `main(engine)`, run while the engine is open."""

    async def inside():
        async with engine:
            return await asyncio.wait_for(main(engine), 60)

    return asyncio.run(inside())


async def until_sampled(engine, count):
    while engine.stats.sampled_tokens < count:  # noqa: ASYNC110 - the engine has no event for it, and needs none
        await asyncio.sleep(0.001)


def engine_of(model, **options):
    return SlotEngine(model, **({"turn_end_id": -1, "slots": 8, "context": 256} | options))


def logprobs_of(model, prompt, sampled, temperature=1.0):
    with torch.inference_mode():
        logits = model.eval()(torch.tensor([[*prompt, *sampled]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.double() / temperature, -1).gather(1, torch.tensor(sampled)[:, None])[:, 0].numpy()


@pytest.mark.parametrize("length", [1, 40, 150])
def test_greedy_equals_transformers_generate(model, length):
    got = run(engine_of(model, step_tokens=64), lambda e: e.generate(ids(length), GREEDY))
    model.eval()
    want = model.generate(
        torch.tensor([ids(length)]), attention_mask=torch.ones(1, length), do_sample=False, max_new_tokens=24,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert list(got.token_ids) == want[0, length:].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_those_of_a_full_forward(model, temperature):
    sampling = Sampling(temperature=temperature, top_p=1, max_tokens=40, seed=3)
    got = run(engine_of(model), lambda e: e.generate(ids(60), sampling))
    np.testing.assert_allclose(got.logprobs, logprobs_of(model, ids(60), got.token_ids, temperature), atol=1e-5)


def test_greedy_reports_the_models_own_log_probabilities(model):
    got = run(engine_of(model), lambda e: e.generate(ids(60), GREEDY))
    np.testing.assert_allclose(got.logprobs, logprobs_of(model, ids(60), got.token_ids), atol=1e-5)


def test_what_is_sampled_does_not_depend_on_the_batch(model):
    requests = [
        (ids(20 + 9 * i, seed=i), Sampling(top_p=0.9 if i % 2 else 1, max_tokens=30, seed=i)) for i in range(16)
    ]
    shuffled = random.Random(5).sample(range(16), 16)

    async def together(engine):
        done = await asyncio.gather(*(engine.generate(*requests[i]) for i in shuffled))
        return dict(zip(shuffled, done, strict=True))

    async def one_by_one(engine):
        return {i: await engine.generate(*requests[i]) for i in range(16)}

    batch = run(engine_of(model, slots=16, step_tokens=100), together)
    alone = run(engine_of(model, slots=1), one_by_one)
    for i in range(16):
        assert batch[i].token_ids == alone[i].token_ids
        np.testing.assert_allclose(batch[i].logprobs, alone[i].logprobs, atol=1e-5)


def test_reusing_a_prefix_changes_nothing(model):
    """Three turns, then one whose middle was rewritten, then a sibling: reused as far as the ids agree."""
    prompts = [ids(60)]
    for turn in range(2):
        prompts.append(prompts[-1] + ids(30, seed=10 + turn))
    prompts.append(prompts[-1][:70] + ids(20, seed=20))
    prompts.append(prompts[0][:50] + ids(5, seed=21))
    samplings = [Sampling(top_p=1, max_tokens=12, seed=i) for i in range(5)]

    async def in_turn(engine):
        return [await engine.generate(p, s) for p, s in zip(prompts, samplings, strict=True)]

    async def afresh(engine):
        done = []
        for prompt, sampling in zip(prompts, samplings, strict=True):
            engine.invalidate()
            done.append(await engine.generate(prompt, sampling))
        return done

    reusing, fresh = run(engine_of(model), in_turn), run(engine_of(model), afresh)
    assert [c.cached_tokens for c in reusing] == [0, 60, 90, 70, 50]
    assert [c.cached_tokens for c in fresh] == [0] * 5
    for one, other in zip(reusing, fresh, strict=True):
        assert one.token_ids == other.token_ids
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_new_weights_are_never_mixed_with_old_keys():
    model, prompt = tiny_model(), ids(100)

    async def before_and_after(engine):
        first = await engine.generate(prompt, GREEDY)
        with engine.pause(), torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
            engine.set_weights(7)
        return first, await engine.generate(prompt, GREEDY)

    first, second = run(engine_of(model), before_and_after)
    assert (first.policy_version, second.policy_version) == (0, 7)
    assert second.cached_tokens == 0
    np.testing.assert_allclose(second.logprobs, logprobs_of(model, prompt, second.token_ids), atol=1e-5)
    assert np.abs(np.array(first.logprobs) - logprobs_of(model, prompt, first.token_ids)).max() > 1e-2


def test_a_turn_in_flight_goes_on_exactly_under_new_weights():
    model, prompt = tiny_model(), ids(100)

    async def changed_midway(engine):
        turn = asyncio.create_task(engine.generate(prompt, Sampling(top_p=1, max_tokens=150, seed=2)))
        await until_sampled(engine, 10)
        with engine.pause(), torch.no_grad():
            sampled = engine.stats.sampled_tokens
            model.lm_head.weight.mul_(1.5)
            engine.set_weights(1)
        return sampled, await turn

    sampled, got = run(engine_of(model), changed_midway)
    assert 10 <= sampled < 150
    assert got.policy_version == 0
    new = logprobs_of(model, prompt, got.token_ids)
    np.testing.assert_allclose(got.logprobs[sampled:], new[sampled:], atol=1e-5)
    assert np.abs(np.array(got.logprobs[:sampled]) - new[:sampled]).max() > 1e-2


def test_nothing_computes_during_a_pause(model):
    async def paused(engine):
        with engine.pause():
            turn = asyncio.create_task(engine.generate(ids(10), GREEDY))
            await asyncio.sleep(0.05)
            steps = engine.stats.steps
        return steps, await turn

    steps, got = run(engine_of(model), paused)
    assert steps == 0
    assert len(got.token_ids) == 24


def test_a_cancelled_request_frees_its_slot(model):
    async def cancel(engine):
        long = asyncio.create_task(engine.generate(ids(10), Sampling(max_tokens=10_000)))
        waiting = asyncio.create_task(engine.generate(ids(10, seed=1), GREEDY))
        await until_sampled(engine, 1)
        assert engine.free_slots == 0
        long.cancel()
        return await waiting, await asyncio.gather(long, return_exceptions=True)

    engine = engine_of(model, slots=1, context=20_000)
    got, cancelled = run(engine, cancel)
    assert len(got.token_ids) == 24
    assert isinstance(cancelled[0], asyncio.CancelledError)
    assert engine.free_slots == 1


@pytest.mark.parametrize(
    ("length", "max_tokens", "sampled"), [(10, 5, 5), (250, 50, 6), (255, 50, 1)], ids=["max", "full", "last"]
)
def test_a_turn_is_cut_at_its_limit_or_a_full_context(model, length, max_tokens, sampled):
    got = run(engine_of(model), lambda e: e.generate(ids(length), Sampling(max_tokens=max_tokens, seed=0)))
    assert (len(got.token_ids), got.finish) == (sampled, Finish.LENGTH)


def test_a_turn_ends_with_its_token(model):
    free = run(engine_of(model), lambda e: e.generate(ids(30), GREEDY))
    end = free.token_ids[5]
    got = run(engine_of(model, turn_end_id=end), lambda e: e.generate(ids(30), GREEDY))
    assert got.token_ids == free.token_ids[: free.token_ids.index(end) + 1]
    assert got.finish is Finish.STOP


@pytest.mark.parametrize(
    ("prompt", "sampling", "error"),
    [
        (ids(256), GREEDY, ContextOverflow),
        ([], GREEDY, ValueError),
        ([VOCABULARY], GREEDY, ValueError),
        ([1], Sampling(max_tokens=0), ValueError),
        ([1], Sampling(top_p=0), ValueError),
    ],
)
def test_a_request_without_meaning_is_refused_alone(model, prompt, sampling, error):
    async def both(engine):
        good = asyncio.create_task(engine.generate(ids(5), GREEDY))
        with pytest.raises(error):
            await engine.generate(prompt, sampling)
        return await good

    assert len(run(engine_of(model), both).token_ids) == 24


def test_a_failure_reaches_everyone_and_stays_said():
    model = tiny_model()

    async def spoiled(engine):
        turns = [asyncio.create_task(engine.generate(ids(9, seed=i), Sampling(max_tokens=10_000))) for i in range(12)]
        await until_sampled(engine, 1)
        with engine.pause(), torch.no_grad():
            model.lm_head.weight.fill_(float("nan"))
        failed = await asyncio.gather(*turns, return_exceptions=True)
        with pytest.raises(LLMError, match="not finite"):
            await engine.generate(ids(5), GREEDY)
        return failed

    failed = run(engine_of(model, context=20_000), spoiled)
    assert [type(f) for f in failed] == [LLMError] * 12


def test_closing_fails_who_still_waits(model):
    async def left_waiting():
        async with engine_of(model, context=20_000) as engine:
            turn = asyncio.create_task(engine.generate(ids(9), Sampling(max_tokens=10_000)))
            await asyncio.sleep(0.02)
        with pytest.raises(LLMError, match="closed"):
            await turn
        with pytest.raises(LLMError, match="closed"):
            await engine.generate(ids(9), GREEDY)

    asyncio.run(left_waiting())
    with pytest.raises(LLMError, match="not running"):
        asyncio.run(engine_of(model).generate(ids(9), GREEDY))


def test_the_event_loop_is_not_blocked(model):
    async def beats(engine):
        turn = asyncio.create_task(engine.generate(ids(9), Sampling(max_tokens=200, seed=0)))
        longest, last = 0.0, time.perf_counter()
        while not turn.done():
            await asyncio.sleep(0.002)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        return longest, engine.stats.busy_seconds

    longest, busy = run(engine_of(model), beats)
    assert longest < busy / 2


def test_an_engine_opens_from_a_folder(model, tmp_path):
    save_model(model, tmp_path / "model")
    with pytest.raises(InputError, match="eos_token_id"):
        SlotEngine.from_folder(tmp_path / "model")
    engine = SlotEngine.from_folder(tmp_path / "model", slots=2, context=64, turn_end_id=-1)
    got = run(engine, lambda e: e.generate(ids(30), GREEDY))
    want = run(engine_of(model), lambda e: e.generate(ids(30), GREEDY))
    assert got.token_ids == want.token_ids


@pytest.mark.parametrize("kind", ["llama", "qwen2", "mixtral", "gpt2"])
def test_other_causal_models_are_served(kind):
    shape = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": None, "eos_token_id": None}
    config = AutoConfig.for_model(kind, **shape, **ends, **({} if kind == "gpt2" else {"num_key_value_heads": 2}))
    other = AutoModelForCausalLM.from_config(config)
    sampling = Sampling(top_p=1, max_tokens=12, seed=1)
    got = run(engine_of(other, step_tokens=16), lambda e: e.generate(ids(40), sampling))
    np.testing.assert_allclose(got.logprobs, logprobs_of(other, ids(40), got.token_ids), atol=1e-5)


def test_attention_that_is_not_plainly_causal_is_refused():
    config = AutoConfig.for_model("mistral", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1,
                                  num_attention_heads=2, num_key_value_heads=1, sliding_window=8)  # fmt: skip
    engine = engine_of(AutoModelForCausalLM.from_config(config))
    with pytest.raises(LLMError, match="plain causal attention"):
        run(engine, lambda e: e.generate(ids(40), GREEDY))


def test_the_model_in_training_is_left_as_it_was():
    model = tiny_model().train()
    run(engine_of(model), lambda e: e.generate(ids(9), GREEDY))
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    model(input_ids=torch.tensor([ids(9)]), labels=torch.tensor([ids(9)])).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_draws_follow_the_distribution():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]]).repeat(20_000, 1)
    n = len(logits)
    draws = Draws.of([0.7] * n, [0.9] * n, [11] * n, list(range(n)))
    chosen, logprobs = sample(logits, draws)
    weights = np.exp(np.array([2.0, 1.0]) / 0.7)
    np.testing.assert_allclose(np.bincount(chosen, minlength=4) / n, [*weights / weights.sum(), 0, 0], atol=0.01)
    np.testing.assert_allclose(sorted(set(logprobs)), np.sort(np.log(weights / weights.sum())), atol=1e-12)


def test_a_nucleus_wider_than_the_guess_is_exact():
    logits = torch.zeros(1, 1000)
    logits[0, 500] = 0.01
    chosen = {sample(logits, Draws.of([1.0], [0.5], [seed], [0]))[0][0] for seed in range(2000)}
    assert 500 in chosen
    assert 460 < len(chosen) <= 501


def test_streams_differ_by_seed_and_position():
    grid = [(seed, position) for seed in (0, 1, -1, 2**200) for position in range(500)]
    numbers = uniforms(*map(list, zip(*grid, strict=True)))
    assert len(set(numbers)) == len(grid)
    assert abs(numbers.mean() - 0.5) < 0.02
    assert uniforms([5], [9])[0] == uniforms([5, 5], [8, 9])[1]


@pytest.mark.parametrize(
    ("prompt", "slot", "source", "reused"),
    [
        pytest.param([*range(40), *range(60, 70)], 0, 0, 40, id="goes on in its own slot"),
        pytest.param([*range(15), *range(60, 99)], 2, 0, 15, id="a sibling copies a short beginning"),
        pytest.param([*range(40)], 0, 0, 39, id="its last token is computed again"),
        pytest.param([99, 98], 2, 2, 0, id="a stranger takes the slot released longest ago"),
    ],
)
def test_the_slot_a_request_takes(prompt, slot, source, reused):
    table = SlotTable(3, 128)
    for first in (range(40), range(50, 90)):
        place = table.take(np.array(first))
        table.filled[place.slot] = 40
        table.release(place.slot)
    place = table.take(np.array(prompt))
    assert (place.slot, place.source, place.reused) == (slot, source, reused)


def test_samples_of_one_question_wait_for_its_prompt_to_be_computed_once():
    table = SlotTable(4, 128)
    prompt = np.arange(100)
    leader = table.take(prompt)
    assert table.take(prompt) is None
    assert table.take(np.arange(50, 110)) is not None
    table.filled[leader.slot] = 100
    follower = table.take(prompt)
    assert (follower.source, follower.reused) == (leader.slot, 99)


def test_decoding_requests_are_grouped_where_padding_is_cheap():
    segments = [Segment(slot, start, 1) for slot, start in [(5, 10), (0, 600), (1, 640), (2, 20), (4, 12)]]
    plan = plan_step([*segments, Segment(3, 7, 4)], torch.float32, torch.device("cpu"))
    assert [(r.slot, r.count, r.width) for r in plan.runs] == [(0, 2, 641), (2, 1, 21), (4, 2, 13)]
    assert plan.slots.tolist() == [0, 1, 2, 4, 5, 3, 3, 3, 3]
    assert plan.positions.tolist() == [600, 640, 20, 12, 10, 7, 8, 9, 10]
    assert plan.last_rows.tolist() == [0, 1, 2, 3, 4, 8]
    assert (plan.chunks[0].mask == 0).sum(1).tolist() == [8, 9, 10, 11]
