"""A small byte-level BPE tokenizer with the ChatML tokens, trained in milliseconds, for tests that need ids."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ATOMS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
TEXT = [
    "user assistant system tool search read the capital of Avaland is Bremont . The river flows to the sea",
    '{"name": "search", "arguments": {"q": "capital of Avaland"}}',
]


def write_tokenizer(folder: Path) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    tokenizer.add_tokens([AddedToken(atom, special=False, normalized=False) for atom in ATOMS])
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
