"""A user's own folder of configs: known to every command, its mistakes told in one line."""

from pathlib import Path

import pytest

from eval import app, choices
from eval.arms import instantiate
from eval.config import RunPlan
from selkv.named import method_named
from tests.stub_runner import install_runner

BROKEN = {
    "window: [32": ["mine.yaml", "not YAML"],
    "# @package methods.mine\n- 1": ["methods.mine=[1]", "hyperparameter"],
    "# @package methods.mine\nwindow: 32": ["mine", "_target_"],
    "_target_: baselines.snapkv.SnapKV": ["mine.yaml", "# @package methods.mine"],
    "# @package methods.mine\n_target_: 5": ["mine", "5", "import"],
    "# @package methods.mine\n_target_: os.path.join": ["mine", "os.path.join", "selkv.Method"],
    "# @package methods.mine\n_target_: selkv.method.Method": ["mine", "selkv.method.Method"],
    "# @package methods.mine\n_target_: baselines.snapkv.SnapKV\nwindow: many": ["mine", "window='many'", "whole"],
}


@pytest.mark.parametrize("text", BROKEN)
def test_mistake_in_an_own_yaml_is_one_line(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "configs" / "method"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(text)
    monkeypatch.setenv("SELKV_CONFIGS", "")  # restored after the option has set it
    choices.known_keys.cache_clear()
    install_runner(monkeypatch, lambda plan: len([instantiate(arm) for arm in plan.arms]) * 0)
    assert app.main(["--config-dir", str(own.parent), "method=mine"]) == 2
    choices.known_keys.cache_clear()
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    for word in BROKEN[text]:
        assert word in error


def test_an_own_yaml_cannot_hide_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plans: list[RunPlan], capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "configs" / "method"
    own.mkdir(parents=True)
    (own / "snapkv.yaml").write_text("# @package methods.snapkv\n_target_: baselines.snapkv.SnapKV\nwindow: 4\n")
    monkeypatch.setenv("SELKV_CONFIGS", str(own.parent))
    assert app.main(["method=snapkv"]) == 2
    assert "snapkv.yaml has the name of a file of SelKV" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["configs", "with space", "Straße 'x'"])
def test_own_configs_are_known_everywhere(
    folder: str,
    tmp_path: Path,
    plans: list[RunPlan],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = tmp_path / folder / "method"
    own.mkdir(parents=True)
    text = "# @package methods.mine\n# A method of mine\n_target_: baselines.snapkv.SnapKV\nwindow: 8\n"
    (own / "mine.yaml").write_text(text)
    monkeypatch.setenv("SELKV_CONFIGS", str(own.parent))
    assert app.main(["--help"]) == 0
    assert "A method of mine" in capsys.readouterr().out
    assert app.main(["method=mine", "methods.mine.window=9"]) == 0
    assert [arm.params for arm in plans[0].arms][-1] == {"window": 9}
    assert app.plan_of(["method=[mine,snapkv]"]).arms[1].method == "mine"
    assert method_named("mine", window=3).needs(100, 10).window == 3


def test_method_inside_another_takes_hyperparameters(plans: list[RunPlan]) -> None:
    assert app.main(["method=merge", "methods.merge.selection._target_=h2o", "methods.merge.selection.recent=4"]) == 0
    assert plans[0].arms[-1].params["selection"] == {"_target_": "h2o", "recent": 4}
    assert vars(instantiate(plans[0].arms[-1]))["selection"].recent == 4
