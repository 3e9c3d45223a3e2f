"""The doctor: green on what works, red with the fix on what does not, one line for bad options."""

import pytest

from eval.doctor_cli import main
from selkv.embedded import gguf_path
from selkv.named import OWN


def test_bad_options_are_one_line(capsys):
    assert main(["method=[selkw]"]) == 2
    assert "selkv" in capsys.readouterr().err


def test_missing_data_and_bad_hyperparameters_are_red(tmp_path, capsys):
    arguments = ["data=longbench", f"data.path={tmp_path}", "methods.selkv.bucket=0"]
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "✗ hyperparameters" in text and "bucket=0" in text
    assert "✗ data" in text


def test_the_model_and_its_options_are_checked_apart(tmp_path, capsys):
    options = ["model.device=gpu", "data.tokens=120", "data.tasks=[hotpotqa]"]
    assert main(["model=hf", f"model.path={tmp_path / 'nope'}", "data=mini", *options]) == 1
    text = capsys.readouterr().out
    assert "✗ model  " in text and "nor a hub id" in text
    assert "✗ model options  unknown model.device 'gpu'" in text and "2 to fix" in text


def test_configs_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(OWN, "")
    (tmp_path / "method").mkdir()
    (tmp_path / "method/mine.yaml").write_text("# @package methods.mine\n_target_: selkv.selkv.SelKV\nalpha: -1\n")
    assert main(["--config-dir", str(tmp_path), "method=[mine]", "data=longbench", f"data.path={tmp_path}"]) == 1
    assert "✗ hyperparameters  method mine: alpha=-1" in capsys.readouterr().out
    assert main(["--config-dri", str(tmp_path)]) == 2
    assert "unknown flag" in capsys.readouterr().err


@pytest.mark.skipif(gguf_path() is None, reason="the embedded model is not installed")
def test_the_default_run_is_ready(capsys):
    assert main(["data.tasks=[hotpotqa,samsum]"]) == 0
    text = capsys.readouterr().out
    assert "✓ prompt samsum" in text and "<|im_end|>" in text and "ready" in text


@pytest.mark.skipif(gguf_path() is None, reason="the embedded model is not installed")
def test_what_the_run_would_refuse_is_red(capsys):
    assert main(["data.tasks=[hotpotqa]", "model.max_prompt_tokens=9000"]) == 1
    assert "✗ room" in capsys.readouterr().out
