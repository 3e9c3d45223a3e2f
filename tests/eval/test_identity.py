"""A model that cannot be reached is told in one line, whatever the hub's library uses for its requests."""

import pytest

from eval.identity import resolved_revision
from selkv.errors import UserError

ABSENT = "nobody/no-such-model"


@pytest.mark.parametrize("setting", [{"HF_HUB_OFFLINE": True}, {"ENDPOINT": "http://127.0.0.1:9"}])
def test_unreachable_model(setting: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name, value in setting.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    with pytest.raises(UserError, match=f"model {ABSENT} is neither on this machine nor reachable"):
        resolved_revision(ABSENT, "main")
