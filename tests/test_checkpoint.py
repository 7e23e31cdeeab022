from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the train extra is not installed")

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from configs.errors import InputError, RunFailed, StorageError
from training.checkpoint import ExpertSafeTrainerMixin, save_model, verify_resume
from training.model import load_model, load_tokenizer, new_model, tiny_config

EXPERTS = "model.layers.0.mlp.experts.gate_up_proj"


def tiny_model(seed=0):
    return new_model(tiny_config(64, hidden_size=32, layers=2, experts=4), seed=seed)


def same_weights(one, other):
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Sequences(Dataset):
    """Twelve fixed rows of token ids."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        ids = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


class SafeTrainer(ExpertSafeTrainerMixin, Trainer):
    pass


def trainer(kind, out: Path, steps: int, seed=0, **options):
    args = TrainingArguments(
        str(out), max_steps=steps, per_device_train_batch_size=2, save_strategy="steps", save_steps=2, use_cpu=True,
        learning_rate=1e-2, report_to="none", disable_tqdm=True, seed=7, logging_strategy="no", **options,
    )  # fmt: skip
    return kind(tiny_model(seed), args, train_dataset=Sequences())


@pytest.mark.parametrize("for_training", [False, True])
def test_a_saved_model_loads_with_every_weight(tmp_path, for_training):
    model = tiny_model()
    save_model(model, tmp_path / "deep" / "model")
    loaded = load_model(tmp_path / "deep" / "model", for_training=for_training)
    assert same_weights(model, loaded)
    assert loaded.training == for_training
    assert loaded.config._attn_implementation == "sdpa"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model"]


def test_weights_can_be_stored_in_bfloat16_without_touching_the_model(tmp_path):
    model = tiny_model()
    save_model(model, tmp_path / "model", dtype=torch.bfloat16)
    assert model.dtype == torch.float32
    loaded = load_model(tmp_path / "model", for_training=False)
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded.state_dict()[EXPERTS], model.state_dict()[EXPERTS].bfloat16().float())


def test_a_folder_is_replaced_by_a_whole_one_or_not_at_all(tmp_path):
    first, second = tiny_model(0), tiny_model(1)
    (tmp_path / ".model.writing").mkdir()
    (tmp_path / ".model.writing" / "left by a killed run").touch()
    save_model(first, tmp_path / "model")
    assert not (tmp_path / "model" / "left by a killed run").exists()
    save_model(second, tmp_path / "model")
    verify_resume(second, tmp_path / "model")
    with pytest.raises(StorageError):
        save_model(first, tmp_path / "model" / "config.json" / "model")
    verify_resume(second, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_one_changed_expert_weight_is_noticed(tmp_path):
    model = tiny_model()
    save_model(model, tmp_path / "model")
    with torch.no_grad():
        model.get_parameter(EXPERTS)[1, 2, 3] += 1e-3
    with pytest.raises(RunFailed, match="gate_up_proj"):
        verify_resume(model, tmp_path / "model")


def test_the_router_loss_is_off_unless_weighted(tmp_path):
    save_model(tiny_model(), tmp_path / "model")
    ids = torch.arange(16)[None]
    plain = load_model(tmp_path / "model", for_training=True)
    weighted = load_model(tmp_path / "model", for_training=True, router_aux_loss=0.5)
    loss = plain(input_ids=ids, labels=ids).loss
    output = weighted(input_ids=ids, labels=ids)
    assert torch.allclose(output.loss, loss + 0.5 * output.aux_loss)


@pytest.mark.parametrize("broken", ["absent", "empty", "no weights", "torn config", "missing experts"])
def test_a_folder_that_is_no_model_is_a_plain_error(tmp_path, broken):
    folder = tmp_path / "model"
    if broken == "empty":
        folder.mkdir()
    elif broken != "absent":
        save_model(tiny_model(), folder)
    if broken == "no weights":
        (folder / "model.safetensors").unlink()
    elif broken == "torn config":
        (folder / "config.json").write_text('{"model_type": "qwen3', encoding="utf-8")
    elif broken == "missing experts":
        from safetensors.torch import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        kept = {name: weight for name, weight in weights.items() if "experts.3" not in name}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="model"):
        load_model(folder, for_training=False)
    with pytest.raises(InputError):
        load_tokenizer(folder)


def test_resuming_restores_the_experts_and_goes_on_bit_for_bit(tmp_path):
    whole = trainer(SafeTrainer, tmp_path / "whole", 6)
    whole.train()
    checkpoint = tmp_path / "whole" / "checkpoint-4"
    resumed = trainer(SafeTrainer, tmp_path / "resumed", 6, seed=1)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert same_weights(whole.model, resumed.model)
    # Not because nothing was trained: the last steps changed the experts.
    with pytest.raises(RunFailed):
        verify_resume(resumed.model, checkpoint)


def test_the_mixin_loads_what_plain_transformers_leaves_out(tmp_path):
    trainer(SafeTrainer, tmp_path, 2).train()
    checkpoint = str(tmp_path / "checkpoint-2")
    safe, plain = (trainer(kind, tmp_path / "again", 2, seed=1) for kind in (SafeTrainer, Trainer))
    safe._load_from_checkpoint(checkpoint)
    verify_resume(safe.model, Path(checkpoint))
    plain._load_from_checkpoint(checkpoint)
    if torch.equal(safe.model.get_parameter(EXPERTS), plain.model.get_parameter(EXPERTS)):
        pytest.fail("transformers now restores fused experts itself: the mixin can go")
