"""The doctor: green on what works, red with the fix on what does not, one line for bad options."""

import pytest

from eval.doctor_cli import main
from selkv.embedded import gguf_path


def test_bad_options_are_one_line(capsys):
    assert main(["method=[selkw]"]) == 2
    assert "selkv" in capsys.readouterr().err


def test_missing_data_and_bad_hyperparameters_are_red(tmp_path, capsys):
    arguments = ["data=longbench", f"data.path={tmp_path}", "methods.selkv.bucket=0"]
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "✗ hyperparameters" in text and "bucket=0" in text
    assert "✗ data" in text


@pytest.mark.skipif(gguf_path() is None, reason="the embedded model is not installed")
def test_the_default_run_is_ready(capsys):
    assert main(["data.tasks=[hotpotqa,samsum]"]) == 0
    text = capsys.readouterr().out
    assert "✓ prompt samsum" in text and "<|im_end|>" in text and "ready" in text
