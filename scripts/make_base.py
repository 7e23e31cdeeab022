"""Makes the tiny base model that the repository carries: tokenizer, random weights, pre-training, a check.

    python -m scripts.make_base --out first --steps 5000
    python -m scripts.make_base --out second --steps 4500 --peak 2e-3 --seed 1 --start-from first
    python -m scripts.make_base --out training/base --steps 3500 --peak 2e-3 --seed 2 --start-from second
    python -m scripts.make_base --check training/base

The first three made the one that is carried, on one CPU thread at about 9,000 tokens a second; the last repeats the
check alone. (Names of generated worlds became more varied before the third; a repetition differs in that.)

* Byte-level BPE over pieces in which a capitalised word, a run of lower-case words, a digit and a punctuation mark
  stand apart. So a capitalised word has the same tokens wherever it stands, and so has a name that ends in one.
* Pre-trained on `data_synthesis.primer` alone: pages (loss on every token) and single turns of copying and quoting
  (loss on the reply). The training loss is printed on the way.
* The folder is a whole model folder, its generation config naming the end-of-turn and the padding token.
* At the end, and with `--check`, it prints how often the model quotes right: greedily, on `CHECKED` exercises over
  worlds whose names it has never met. Right are exactly the quotes asked for, word for word, in any order; where one
  page is shown its address is not, so addresses do not count. The carried one: 107 of 200
  exercises, 279 of 386 quotes.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedModel

from data_synthesis import factbook
from data_synthesis.holdout import training_pools
from data_synthesis.names import Pools
from data_synthesis.pages import render_pages
from data_synthesis.primer import documents, exercises
from data_synthesis.teacher import render_turn, turn_after
from data_synthesis.tree import from_json
from data_synthesis.webhop import Rejection, WebHopConfig, generate
from data_synthesis.world import generate_world
from inference.llm.protocol import Sampling
from inference.llm.render import CHAT_TEMPLATE
from inference.types import Finish
from inference.web.recorded_web import Page, RecordedWeb
from inference.web.text import best_sentences, sentences
from training.checkpoint import save_model
from training.engine import SlotEngine
from training.model import load_model, new_model, tiny_config

VOCABULARY = 1024
LONGEST = 512
"""Tokens of the longest example."""
CHECKED = 200
CHECK_SEED = 7_777
"""Of the exercises that are checked; training worlds have other seeds."""
PIECES = r"\p{Lu}[\p{L}\p{M}]*|[\p{Ll}\p{M} ]+|\p{N}|[^\p{L}\p{N} ]|\p{L}+"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ATOMS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    '</think>\n<tool_call>\n{"name": "google_search", "arguments": {"q": "',
    '</think>\n<tool_call>\n{"name": "scrape_and_extract_info", "arguments": {"url": "',
    '", "info_to_extract": "',
    '"}}\n</tool_call>',
    "https://",
    ".example/",
    "\\boxed{",
    '" | ',
    ' | "',
    "\n- ",
]
"""Markup that is always written the same way: one token each."""


def vocabulary_texts(pools: Pools, num_worlds: int) -> Iterator[str]:
    """What the tokenizer learns its merges from: pages and the words of an agent at work."""
    for number in range(num_worlds):
        facts = generate_world(9_000_000 + number, 40, pools)
        pages = list(render_pages(facts, number))
        yield from (page.text for page in pages)
        yield from (page.url for page in pages[::3])
        web = RecordedWeb(Page(p.url, p.title, p.text, p.links) for p in pages)
        for problem in generate(facts, WebHopConfig(), 12, f"vocabulary{number}"):
            if not isinstance(problem, Rejection):
                yield problem.question.text
                yield from _turns(web, problem.provenance.tree, problem.question.id)


def _turns(web: RecordedWeb, tree: dict[str, Any], seed: str) -> Iterator[str]:
    observations: list[str] = []
    while len(observations) < 12:
        turn = turn_after(from_json(tree), observations, seed, 0.1)
        yield render_turn(turn)
        if turn.tool is None:
            return
        if turn.tool == "google_search":
            hits = web.search(turn.arguments["q"], 3)
            text = "\n".join(f"[{i}] {h.title} | {h.link}\n{h.snippet}" for i, h in enumerate(hits, start=1))
        else:
            page = web.read(turn.arguments["url"])
            text = "\n".join(best_sentences(turn.arguments["info_to_extract"], sentences(page.text), 4)) if page else ""
        observations.append(text)
        yield text


def train_tokenizer(texts: Iterator[str]) -> Tokenizer:
    """Byte-level BPE in which every text is encodable and every name keeps its tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(ATOMS),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(atom, special=False, normalized=False) for atom in ATOMS])
    return tokenizer


def examples(tokenizer: Tokenizer, pools: Pools, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """(token ids, labels): a page for every nine exercises."""
    document_end, end = special_id(tokenizer, 0), special_id(tokenizer, 2)
    pages, turns = documents(seed, pools), exercises(seed + 1, pools)
    for number in itertools.count():
        if number % 10 == 0:
            ids = [*tokenizer.encode(next(pages)).ids, document_end]
            yield ids, ids
            continue
        material, reply = next(turns)
        prompt = prompt_ids(tokenizer, material)
        ids = [*prompt, *tokenizer.encode(reply).ids, end]
        yield ids, [-100] * len(prompt) + ids[len(prompt) :]


def special_id(tokenizer: Tokenizer, number: int) -> int:
    """The id of `SPECIAL[number]`."""
    return int(tokenizer.get_vocab()[SPECIAL[number]])


def prompt_ids(tokenizer: Tokenizer, material: str) -> list[int]:
    """An exercise as the model meets it, up to where its reply begins."""
    start, end = special_id(tokenizer, 1), special_id(tokenizer, 2)
    said = [tokenizer.encode(text).ids for text in ("user\n", material, "\n", "assistant\n")]
    return [start, *said[0], *said[1], end, *said[2], start, *said[3]]


def batches(
    stream: Iterator[tuple[list[int], list[int]]], tokens: int, longest: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Padded batches of about `tokens` tokens, examples of like length together."""
    while True:
        pool = sorted((e for e in itertools.islice(stream, 512) if len(e[0]) <= longest), key=lambda e: len(e[0]))
        rows: list[list[tuple[list[int], list[int]]]] = [[]]
        for example in pool:
            if len(example[0]) * (len(rows[-1]) + 1) > tokens:
                rows.append([])
            rows[-1].append(example)
        random.Random(len(pool[0][0])).shuffle(rows)
        for row in rows:
            width = max(len(ids) for ids, _ in row)
            ids = torch.zeros(len(row), width, dtype=torch.long)
            labels = torch.full((len(row), width), -100)
            for i, (x, y) in enumerate(row):
                ids[i, : len(x)] = torch.tensor(x)
                labels[i, : len(y)] = torch.tensor(y)
            yield ids, labels, (torch.arange(width)[None] < torch.tensor([len(x) for x, _ in row])[:, None]).long()


def fresh_model(tokenizer: Tokenizer, seed: int) -> PreTrainedModel:
    """Random weights. They are drawn wider than a large model's, or attention stays flat for long."""
    config = tiny_config(tokenizer.get_vocab_size())
    config.initializer_range = 0.06
    return new_model(config, seed=seed)


def pretrain(
    model: PreTrainedModel, tokenizer: Tokenizer, pools: Pools, *, steps: int, seed: int, peak: float, tokens: int
) -> PreTrainedModel:
    """`model` after `steps` AdamW steps, the learning rate warmed up and then falling as a cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01, betas=(0.9, 0.95))
    stream = batches(examples(tokenizer, pools, seed), tokens, LONGEST)
    began, seen = time.time(), 0
    for step in range(steps):
        rate = peak * min(1.0, (step + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels, mask = next(stream)
        hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
        wanted = labels[:, 1:] != -100
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden[wanted]), labels[:, 1:][wanted])
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen += int(mask.sum())
        if step % 100 == 0:
            spent = time.time() - began
            print(f"step {step} loss {loss.item():.3f} tokens {seen} {seen / spent:.0f}/s {spent:.0f} s", flush=True)
    return model


def save(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model folder, in bfloat16, in one piece. Raises StorageError, RunFailed."""
    pad, end = special_id(tokenizer, 0), special_id(tokenizer, 2)
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.max_position_embeddings,
    }
    with tempfile.TemporaryDirectory() as place:
        beside = Path(place)
        tokenizer.save(str(beside / "tokenizer.json"))
        (beside / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
        (beside / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
        save_model(model.to(torch.bfloat16), folder, tokenizer_from=beside)


def check_exercises(tokenizer: Tokenizer, count: int) -> list[tuple[list[int], str]]:
    """(prompt ids, reply) of the first `count` exercises that quote, none longer than training's."""
    found: list[tuple[list[int], str]] = []
    for material, reply in exercises(CHECK_SEED, {}):
        if len(found) == count:
            break
        prompt = prompt_ids(tokenizer, material)
        if '"' in reply and len(prompt) + len(tokenizer.encode(reply).ids) < LONGEST:
            found.append((prompt, reply))
    return found


@dataclass(frozen=True, slots=True)
class Quoted:
    exercises: int
    right: int
    """Exercises whose reply holds the quotes asked for and no other, and ends."""
    quotes: int
    """Asked for in all exercises together."""
    found: int
    """Of those, in the replies."""


async def quoted(folder: Path, count: int = CHECKED) -> Quoted:
    """How the model in `folder` quotes, greedily, in `count` exercises."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    asked = check_exercises(tokenizer, count)
    async with SlotEngine.from_folder(folder, slots=32, context=2 * LONGEST) as engine:
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=LONGEST)
        turns = await asyncio.gather(*(engine.generate(prompt, sampling) for prompt, _ in asked))
    said = [quotes(str(tokenizer.decode(list(turn.token_ids)))) for turn in turns]
    wanted = [quotes(reply) for _, reply in asked]
    ended = [turn.finish is Finish.STOP for turn in turns]
    return Quoted(
        exercises=len(asked),
        right=sum(whole and a == b for whole, a, b in zip(ended, said, wanted, strict=True)),
        quotes=sum(b.total() for b in wanted),
        found=sum((a & b).total() for a, b in zip(said, wanted, strict=True)),
    )


def quotes(reply: str) -> Counter[str]:
    """What stands in quotation marks, and how often."""
    return Counter(re.findall(r'"([^"\n]*)"', reply))


def report(folder: Path) -> None:
    """Print how the model in `folder` quotes."""
    q = asyncio.run(quoted(folder))
    print(
        f"quotes right: {q.right} of {q.exercises} exercises ({q.right / q.exercises:.0%}), "
        f"{q.found} of {q.quotes} quotes ({q.found / q.quotes:.0%})",
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder to make")
    what.add_argument("--check", type=Path, metavar="FOLDER", help="make nothing, check what is there")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens a batch")
    parser.add_argument("--peak", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--start-from", type=Path, help="a base to go on from, tokenizer and weights")
    parser.add_argument("--worlds", type=int, default=40, help="worlds the tokenizer is trained on")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    if args.check is not None:
        return report(args.check)
    pools = training_pools(factbook.load())
    if args.start_from is None:
        tokenizer = train_tokenizer(vocabulary_texts(pools, args.worlds))
        model = fresh_model(tokenizer, args.seed)
    else:
        tokenizer = Tokenizer.from_file(str(args.start_from / "tokenizer.json"))
        model = load_model(args.start_from, for_training=True)
    model = pretrain(model, tokenizer, pools, steps=args.steps, seed=args.seed, peak=args.peak, tokens=args.tokens)
    save(model, tokenizer, args.out)
    return report(args.out)


if __name__ == "__main__":
    main()
