"""Models that are not there, are damaged, or are none: one line each."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import selkv
from selkv.errors import Missing, UserError
from selkv.load import load_model, load_tokenizer
from tests.eval.runs import save_model
from tests.models import BASE, build


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("saved"))


def copy_of(saved: Path, folder: Path, **changed: bytes | None) -> Path:
    """The saved model with files changed or (None) left out; a name's ``_`` stands for its dot."""
    shutil.copytree(saved, folder / "copy")
    for name, content in changed.items():
        file = folder / "copy" / name.replace("_json", ".json").replace("_safetensors", ".safetensors")
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    return folder / "copy"


@pytest.mark.parametrize("path", ["/nope/folder", "./nope", "~/nope", "a b c", "a/b/c"])
@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_neither_folder_nor_hub_id(load, path):
    with pytest.raises(Missing, match="neither a folder on this machine nor a hub id such as"):
        load(path)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"config_json": None}, "config.json"),
        ({"config_json": b"{x"}, "not a valid JSON file"),
        ({"config_json": b'{"model_type": "foobar"}'}, "foobar"),
        ({"config_json": b'{"model_type": "t5"}'}, "T5Config"),
        ({"model_safetensors": None}, "no file named model.safetensors"),
        ({"model_safetensors": b"cut"}, "header"),
    ],
)
def test_damaged_folders(saved, tmp_path, changed, expected):
    with pytest.raises(UserError) as error:
        load_model(str(copy_of(saved, tmp_path, **changed)))
    assert expected in str(error.value) and "\n" not in str(error.value) and "HF_TOKEN" not in str(error.value)


def test_a_folder_without_a_tokenizer(saved, tmp_path):
    with pytest.raises(
        UserError, match=r"tokenizer of .* could not be loaded: .*(sentencepiece|add its files)"
    ) as error:
        load_tokenizer(copy_of(saved, tmp_path, tokenizer_json=None, tokenizer_config_json=None))
    assert "\n" not in str(error.value)


def test_a_device_map_that_is_none(saved):
    with pytest.raises(UserError, match=r"could not be loaded: .*found foo"):
        load_model(saved, device_map="foo")


def test_a_device_that_is_too_small(saved, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", full)
    with pytest.raises(UserError, match=r"does not fit the device \(CUDA out of memory. Tried\); use dtype bfloat16"):
        load_model(saved)


def test_paths_and_home(saved, monkeypatch):
    monkeypatch.setenv("HOME", str(saved.parent))
    assert load_model(saved).device.type == "cpu"
    assert load_tokenizer(f"~/{saved.name}").chat_template


@pytest.mark.parametrize("model", ["gpt2", None, torch.nn.Linear(1, 1)])
def test_what_is_no_model_cannot_be_prepared(model):
    with pytest.raises(UserError, match=r"load one with selkv.load_model"):
        selkv.prepare(model)


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("llama4_text", {"attention_chunk_size": 16}, r"layer 0 hides .*\(chunked_attention\)"),
        ("phimoe", {"sliding_window": 16}, r"layer 0 hides .*\(sliding_attention\)"),
        ("bloom", {}, r"layers \[0, 1, 2, 3\] of 4"),
        ("mamba", {}, "does not fit: "),
    ],
)
def test_models_that_do_not_fit(kind, changes, expected):
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**{**BASE, **changes})).eval()
    with pytest.raises(UserError, match=expected) as error:
        selkv.prepare(model)
    assert "Use a decoder whose layers" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_models_without_a_language_head(kind):
    with pytest.raises(UserError, match=r"does not fit: .*logits"):
        selkv.prepare(AutoModel.from_config(CONFIG_MAPPING[kind](**BASE)).eval())


def test_a_window_as_long_as_the_model_is_none():
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["phimoe"](**BASE, sliding_window=4096)).eval()
    assert selkv.prepare(model) is model


def test_preparing_twice():
    model = build("llama", attention="eager")
    assert selkv.prepare(selkv.prepare(model)) is model
