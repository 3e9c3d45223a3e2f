"""A model is known by its files; one that cannot be reached is told in one line, whatever the hub's library uses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval.identity import load_options, local_revision, model_path, resolved_revision
from selkv.errors import Missing, UserError

ABSENT = "nobody/no-such-model"


@pytest.mark.parametrize("setting", [{"HF_HUB_OFFLINE": True}, {"ENDPOINT": "http://127.0.0.1:9"}])
def test_unreachable_model(setting: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name, value in setting.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    with pytest.raises(UserError, match=f"model {ABSENT} is neither on this machine nor reachable"):
        resolved_revision(ABSENT, "main")


def test_two_folders_of_one_name_are_two_models(tmp_path: Path) -> None:
    plan: Any = SimpleNamespace(model={"embedded": False})
    folders = [tmp_path / name / "ckpt" for name in "abc"]
    for folder, weights in zip(folders, (b"w" * 2**21, b"w" * (2**21 - 1) + b"x", b"w" * 2**21), strict=True):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(weights[::-1])
    first, other, copy = (local_revision(plan, folder) for folder in folders)
    assert first == copy != other


def plan_with(**model: Any) -> Any:
    defaults = {"path": None, "embedded": False, "revision": "main", "dtype": "auto", "trust_remote_code": False}
    return SimpleNamespace(model={**defaults, "device": "cpu", "device_map": None, "quantization": None, **model})


@pytest.mark.parametrize(
    ("expected", "model"),
    [
        ("unknown model.device 'gpu'; choose from: auto, cpu. Did you mean 'cpu'?", {"device": "gpu"}),
        ("choose from: auto, cpu. PyTorch sees no NVIDIA GPU on this machine", {"device": "cuda"}),
        ("unknown model.device 'cuda:7'", {"device": "cuda:7"}),
        ("unknown model.device 'meta'", {"device": "meta"}),
        ("unknown model.device_map 'foo'; choose from: auto, balanced", {"device_map": "foo"}),
        ("model.device_map 'b'", {"device_map": {"a": "b"}}),
        ("model.device_map 'cuda:1'", {"device_map": {"": 1}}),
        ("unknown model.dtype 'float8'", {"dtype": "float8"}),
        ("Did you mean 'load_in_8bit'?", {"quantization": {"load_in_3bit": True}}),
        ("load_in_4bit must be a boolean", {"quantization": {"load_in_4bit": 5}}),
        ("quantizes nothing", {"quantization": {}}),
        ("quantizes nothing", {"quantization": {"load_in_4bit": False}}),
        ("pip install bitsandbytes", {"quantization": {"load_in_4bit": True}}),
    ],
)
def test_options_that_this_machine_cannot_follow(
    expected: str, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError) as error:
        load_options(plan_with(**model))
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_options_that_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for device, found in {"auto": "cuda", "cuda": "cuda", "cuda:1": "cuda:1", "cpu": "cpu"}.items():
        assert str(load_options(plan_with(device=device))["device_map"]) == found
    for spread in ("auto", {"model": 0, "lm_head": "cpu", "x": "disk"}):
        assert load_options(plan_with(device_map=spread))["device_map"] == spread
    assert "quantization_config" not in load_options(plan_with())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    config = load_options(plan_with(quantization={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}))
    assert config["quantization_config"].bnb_4bit_quant_type == "nf4"


def test_places_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model.path is not set; .*model.path=Qwen"):
        model_path(plan_with())
    with pytest.raises(Missing, match=r"neither a folder .* nor a hub id"):
        model_path(plan_with(path=str(tmp_path / "nope")))
    with pytest.raises(UserError, match=r"holds no config.json"):
        model_path(plan_with(path=str(tmp_path)))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"holds no \*.safetensors or \*.bin"):
        model_path(plan_with(path=str(tmp_path)))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert model_path(plan_with(path=str(tmp_path))) == str(tmp_path)
    assert model_path(plan_with(path="Qwen/Qwen3-8B")) == "Qwen/Qwen3-8B"
