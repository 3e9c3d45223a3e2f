"""Tracking is off by default, refuses a missing package before any work, and never fails a run.

What the trackers themselves receive is tested where they are installed: tests/peers/test_tracking.py.
"""

import builtins
import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from eval import tracking
from eval.runner import run
from eval.view import View
from selkv.errors import UserError
from tests.eval import runs
from tests.eval.simulate import simulate

ARMS = [("full", "1", 0.0), ("selkv alpha=0.5", "0.25", -0.05), ("snapkv", "0.25", -0.1)]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    folder = tmp_path_factory.mktemp("simulated") / "results" / "default" / "tiny"
    missing = [("snapkv", "trec", 0), ("snapkv", "trec", 1)]
    return simulate(folder, ["hotpotqa", "trec"], 2, ARMS, missing=missing)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.save_model(tmp_path_factory.mktemp("model"))


def test_off_by_default(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_mlflow", lambda *parts: pytest.fail("mlflow was asked"))
    monkeypatch.setattr(tracking, "_wandb", lambda *parts: pytest.fail("wandb was asked"))
    assert run(runs.plan(model, tmp_path)) == 0


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_missing_package_is_refused_before_any_work(
    tracker: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == tracker else found(name, *more)
    )
    with pytest.raises(UserError, match=rf"tracking={tracker}.*pip install {tracker}"):
        run(runs.plan(model, tmp_path / "results", f"tracking={tracker}"))
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_failure_of_the_tracker_is_one_line(
    tracker: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def broken(name: str, *parts: Any) -> Any:
        if name == tracker:
            raise RuntimeError("the server is down\nand more")
        return real(name, *parts)

    monkeypatch.setattr(builtins, "__import__", broken)
    monkeypatch.setattr(tracking, "require", lambda tracker: None)
    assert run(runs.plan(model, tmp_path, f"tracking={tracker}")) == 0
    streams = capsys.readouterr()
    warnings = [line for line in streams.err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        f"warning: tracking={tracker} failed (the server is down); results are in {tmp_path}/default/tiny/"
    ]
    assert "Results are in" in streams.out


def test_metrics_have_names_that_trackers_take_and_no_holes(view: View) -> None:
    named = tracking.metrics(view)
    assert set("".join(named)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ ")
    assert all(math.isfinite(value) for value in named.values())
    assert "selkv alpha_0.5/0.25/average" in named and "full/0.25/task/hotpotqa" in named
    assert "snapkv/0.25/task/hotpotqa" in named
    assert "snapkv/0.25/task/trec" not in named and "snapkv/0.25/average" not in named


def test_samples_are_the_cells_with_their_texts(view: View) -> None:
    table = tracking.samples(view)
    assert len(table) == 2 * 2 * len(ARMS)
    for row in table.to_dict("records"):
        record = view.cell(row["dataset"], row["sample"], row["arm"])
        assert row["prediction"] == (record.prediction if record else "")
    assert (table[table.state == "missing"].answers == "").all()


def test_config_becomes_dotted_names() -> None:
    config = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": None, "f": {}}
    assert dict(tracking.flat(config)) == {"a.b": "1", "a.c.d": "[1, 2]", "e": "None", "f": "{}"}
