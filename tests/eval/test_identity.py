"""A model is known by its files; one that cannot be reached is told in one line, whatever the hub's library uses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval.identity import local_revision, resolved_revision
from selkv.errors import UserError

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
