"""Measure the in-process engine: `python -m scripts.bench.engine`, on random weights of the embedded size.

The load is multi-turn: each conversation starts with a prompt of its own, and each turn adds a user part and samples a
fixed number of tokens; a conversation that reaches its last turn is replaced by a new one. The end-of-turn token never
stops a turn, so every run samples the same number of tokens.
"""

import argparse
import asyncio
import random
import time
from dataclasses import dataclass

import torch

from inference.llm.protocol import Sampling
from training.engine import EngineStats, SlotEngine
from training.model import new_model, tiny_config

VOCABULARY = 1024
HEADINGS = (
    "at once", "top_p", "sampled/s", "sampled/cpu s", "read/s", "reused/s", "ms/step",
    "forward", "drawing", "python", "idle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    conversations: int
    """Held at once."""
    seconds: float
    first: int = 200
    """Tokens of the first prompt."""
    added: int = 100
    """Prompt tokens each later turn adds."""
    sampled: int = 25
    """Tokens sampled each turn."""
    turns: int = 8
    top_p: float = 1.0


async def converse(engine: SlotEngine, load: Load, stop_at: float, rng: random.Random) -> None:
    while time.perf_counter() < stop_at:
        ids = rng.choices(range(VOCABULARY), k=load.first)
        for _ in range(load.turns):
            sampling = Sampling(top_p=load.top_p, max_tokens=load.sampled, seed=rng.getrandbits(64))
            ids += (await engine.generate(ids, sampling)).token_ids
            ids += rng.choices(range(VOCABULARY), k=load.added)
            if time.perf_counter() >= stop_at:
                return


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    cpu_seconds: float
    """Of the whole process: on a shared machine the fairer of the two."""
    before: EngineStats
    after: EngineStats


async def run(engine: SlotEngine, load: Load) -> Measured:
    rng = random.Random(0)
    began, cpu, before = time.perf_counter(), time.process_time(), engine.stats
    stop_at = began + load.seconds
    await asyncio.gather(
        *(converse(engine, load, stop_at, random.Random(rng.random())) for _ in range(load.conversations))
    )
    return Measured(time.perf_counter() - began, time.process_time() - cpu, before, engine.stats)


def row(load: Load, measured: Measured) -> str:
    seconds, before, after = measured.seconds, measured.before, measured.after
    sampled = after.sampled_tokens - before.sampled_tokens
    steps = after.steps - before.steps
    forward = after.forward_seconds - before.forward_seconds
    drawing = after.sampling_seconds - before.sampling_seconds
    busy = after.busy_seconds - before.busy_seconds
    cells = [
        load.conversations,
        load.top_p,
        round(sampled / seconds),
        round(sampled / measured.cpu_seconds),
        round((after.prompt_tokens - before.prompt_tokens) / seconds),
        round((after.cached_tokens - before.cached_tokens) / seconds),
        f"{1000 * busy / steps:.1f}",
        f"{100 * forward / seconds:.0f}%",
        f"{100 * drawing / seconds:.0f}%",
        f"{100 * (busy - forward - drawing) / seconds:.0f}%",
        f"{100 * (seconds - busy) / seconds:.0f}%",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


async def alone(engine: SlotEngine, rng: random.Random, slots: int) -> str:
    """Reading and decoding by themselves: `slots` fresh prompts of 600 tokens, then 64 tokens for each of them."""
    prompts = [rng.choices(range(VOCABULARY), k=600) for _ in range(slots)]
    began = time.perf_counter()
    await asyncio.gather(*(engine.generate(p, Sampling(top_p=1, max_tokens=1)) for p in prompts))
    read = time.perf_counter() - began
    began = time.perf_counter()
    await asyncio.gather(*(engine.generate(p, Sampling(top_p=1, max_tokens=64)) for p in prompts))
    decoded = time.perf_counter() - began
    return f"reading alone {slots * 600 / read:,.0f} tok/s; decoding alone {slots * 64 / decoded:,.0f} tok/s at {slots}"


async def main(args: argparse.Namespace) -> None:
    model = new_model(tiny_config(VOCABULARY), seed=0)
    size = sum(p.numel() for p in model.parameters())
    print(f"{size:,} parameters, {args.threads} thread(s), torch {torch.__version__}")
    engine = SlotEngine(model, turn_end_id=-1, slots=args.slots, context=2048, threads=args.threads)
    async with engine:
        print("| " + " | ".join(HEADINGS) + " |")
        print("|" + "---|" * len(HEADINGS))
        for count in args.conversations:
            for top_p in args.top_p:
                load = Load(count, args.seconds, top_p=top_p)
                print(row(load, await run(engine, load)))
        print(await alone(engine, random.Random(1), min(args.slots, 64)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--conversations", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--top-p", type=float, nargs="+", default=[1.0])
    asyncio.run(main(parser.parse_args()))
