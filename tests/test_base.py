"""The carried base: it opens as it is, names keep their tokens, and the script that makes it saves a whole folder."""

import asyncio
import json
import random
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import training
from data_synthesis import factbook, names
from data_synthesis.relations import RELATIONS
from inference.llm.protocol import Sampling
from inference.types import Finish
from scripts.make_base import check_exercises, fresh_model, prompt_ids, quotes, save
from training.engine import SlotEngine

BASE = Path(training.__file__).parent / "base"
PLACES = [
    (" ", ""),
    ("the capital of ", " is"),
    ('"', '" | https://'),
    ("\n", "\n"),
    ("\n- ", " capital"),
    ("; ", ";"),
    ("(", ")"),
    ("https://pedia.example/", ""),
    ("https://pedia.example/Capital_of_", "_and_more"),
    ('</think>\n<tool_call>\n{"name": "google_search", "arguments": {"q": "', '"}}\n</tool_call>'),
    ("\\boxed{", "}"),
]
"""(what stands before a name, what stands after it)."""
_WORD = re.compile(r"(?<![^\W\d_])[A-Z][^\W\d_]*")
_KINDS = {"number", "year", "code", "value"}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(BASE / "tokenizer.json"))


def real_names():
    facts = factbook.load()
    return {*facts.subjects, *(f.object for f in facts if RELATIONS[f.relation].kind not in _KINDS)}


def random_names():
    rng = random.Random(5)
    makers = (names.place, names.person, names.summit, names.basin, names.anthem, names.acronym, names.language)
    return {make(rng) for make in makers for _ in range(100)}


def tokens_at(tokenizer, before, name, after):
    """The tokens that cover `name`, or None where one reaches beyond it."""
    encoded = tokenizer.encode(before + name + after)
    start, end = len(before), len(before) + len(name)
    inside = [(i, s, e) for i, (s, e) in zip(encoded.ids, encoded.offsets, strict=True) if s < end and e > start]
    return [i for i, _, _ in inside] if inside[0][1] == start and inside[-1][2] == end else None


@pytest.mark.parametrize("given", [real_names, random_names])
def test_a_name_has_the_same_tokens_wherever_it_stands(tokenizer, given):
    table = given()
    whole = [name for name in table if re.search(r"(?<![^\W\d_])[A-Z][^\W\d_]*$", name)]
    words = {word for name in table for word in _WORD.findall(name)}
    assert len(whole) > 0.9 * len(table)
    assert len(table) > 500
    for name in {*whole, *words}:
        alone = tokenizer.encode(name).ids
        moved = [place for place in PLACES if tokens_at(tokenizer, place[0], name, place[1]) != alone]
        assert not moved, (name, moved)


def test_the_words_of_a_name_keep_their_tokens_in_its_address(tokenizer):
    for name in real_names():
        address = "https://pedia.example/" + name.replace(" ", "_")
        for word in _WORD.finditer(name):
            before, after = address[: word.start() - len(name)], address[len(address) - len(name) + word.end() :]
            assert tokens_at(tokenizer, before, word[0], after) == tokenizer.encode(word[0]).ids, name


def test_it_is_small_bfloat16_and_opens_without_being_told_how_a_turn_ends(tokenizer):
    assert sum(file.stat().st_size for file in BASE.iterdir()) <= 8_000_000
    with (BASE / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert {tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"} == {"BF16"}
    check_folder(BASE, tokenizer)


def test_the_script_saves_a_folder_that_opens(tokenizer, tmp_path):
    save(fresh_model(tokenizer, 0), tokenizer, tmp_path / "made")
    assert {file.name for file in (tmp_path / "made").iterdir()} == {file.name for file in BASE.iterdir()}
    for name in ("generation_config.json", "tokenizer_config.json", "tokenizer.json", "chat_template.jinja"):
        assert json_or_text(tmp_path / "made" / name) == json_or_text(BASE / name), name
    check_folder(tmp_path / "made", tokenizer)


def json_or_text(path):
    text = path.read_text(encoding="utf-8")
    return (
        {k: v for k, v in json.loads(text).items() if k != "transformers_version"} if path.suffix == ".json" else text
    )


def check_folder(folder, tokenizer):
    """It samples, and what ends a turn is what ends an exercise."""
    assert json_or_text(folder / "generation_config.json") == {
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
        "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
    }

    async def sample():
        async with SlotEngine.from_folder(folder, slots=1, context=64) as engine:
            return await engine.generate(prompt_ids(tokenizer, "Copy."), Sampling(0.0, 1.0, max_tokens=3))

    turn = asyncio.run(sample())
    assert turn.token_ids
    assert (turn.finish is Finish.STOP) == (turn.token_ids[-1] == tokenizer.token_to_id("<|im_end|>"))


def test_checked_exercises_ask_for_quotes_that_their_material_shows(tokenizer):
    asked = check_exercises(tokenizer, 60)
    assert len(asked) == 60
    for prompt, reply in asked:
        shown = tokenizer.decode(prompt, skip_special_tokens=False)
        assert quotes(reply)
        assert all(quote in shown for quote in quotes(reply))
    assert quotes('- a | "b c" | d\n- e | "b c" | f') == {"b c": 2}
