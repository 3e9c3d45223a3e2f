"""What MLflow and Weights & Biases get of a run, without a server."""

import json
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Run

from eval.runner import run
from eval.tracking import metrics, samples
from eval.view import View, load
from tests.eval import runs

METHODS = "method=[full,streamingllm]"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the caller's trackers is used, and what they set does not stay."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE", "WANDB_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def logged(model: Path, results: Path, *options: str) -> View:
    assert run(runs.plan(model, results, METHODS, "report=true", *options)) == 0
    return load(results / "default" / "tiny")


def test_mlflow(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = logged(model, tmp_path, "tracking=mlflow")
    assert "warning: tracking" not in capsys.readouterr().err
    found = mlflow.search_runs(experiment_names=["selkv"], output_format="list")
    assert len(found) == 1 and isinstance(found[0], Run)
    data, run_id = found[0].data, found[0].info.run_id
    assert data.metrics == pytest.approx(metrics(view))
    assert data.params["model.name"] == "tiny" and data.params["methods.streamingllm.sinks"] == "4"
    top = {file.path for file in mlflow.artifacts.list_artifacts(run_id=run_id)}
    assert top >= {"config.yaml", "manifest.json", "report.html", "table.md", "scores.csv", "samples.json", "plots"}
    table = json.loads(mlflow.artifacts.load_text(f"runs:/{run_id}/samples.json"))
    assert len(table["data"]) == len(samples(view)) == 8
    column = table["columns"].index("prediction")
    assert [row[column] for row in table["data"]] == list(samples(view).prediction)


def test_wandb_offline(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = logged(model, tmp_path, "tracking=wandb")
    assert "warning: tracking" not in capsys.readouterr().err
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    pictures = {path.name.rsplit("_", 2)[0] for path in folder.glob("files/media/images/plots/*.png")}
    assert pictures == {path.stem for path in (tmp_path / "default/tiny/plots").glob("*.png")}
    (table,) = folder.glob("files/media/table/samples_*.table.json")
    content = json.loads(table.read_text())
    column = content["columns"].index("prediction")
    assert [row[column] for row in content["data"]] == list(samples(view).prediction)
    stored = next(folder.glob("run-*.wandb")).read_bytes()
    assert all(name.encode() in stored for name in metrics(view)), "every score is in the offline log"


def test_server_that_is_down_does_not_fail_the_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    view = logged(model, tmp_path, "tracking=mlflow")
    assert all(record.error is None for record in view.records.values())
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and "tracking=mlflow failed" in warnings[0]
