"""Optional logging of a finished run to MLflow or Weights & Biases: config, scores, tables, plots, every sample.

Both work without a server: MLflow writes files below ``<results>/mlruns``, Weights & Biases logs offline below
``<results>/wandb``, unless ``MLFLOW_TRACKING_URI`` or ``WANDB_MODE`` says otherwise.
"""

import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.config import RunPlan
from eval.view import View
from selkv.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

PROJECT = "selkv"
PARAMS_A_CALL = 100  # MLflow's limit
PARAM_LENGTH = 500  # of its older servers


def require(tracker: str | None) -> None:
    """Raise UserError, before any work, where the tracker's package is missing."""
    if tracker is not None and importlib.util.find_spec(tracker) is None:
        raise UserError(f"tracking={tracker} needs its package; run: pip install {tracker}, or use tracking=null")


def log(plan: RunPlan, folder: Path, view: View) -> None:
    """Log a finished run to the tracker of the plan, if it names one.

    Parameters
    ----------
    plan : RunPlan
    folder : Path
        Of the run: config, manifest, tables, plots and report are logged as they are.
    view : View
        The run's records: scores become metrics, cells a table.
    """
    if plan.tracking is None:
        return
    try:
        {"mlflow": _mlflow, "wandb": _wandb}[plan.tracking](plan, folder, view)
    except Exception as problem:  # whatever a tracker raises, the run is done and its results are written
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        print(f"warning: tracking={plan.tracking} failed ({reason}); results are in {folder}/", file=sys.stderr)


def metrics(view: View) -> dict[str, float]:
    """Scores by ``method/ratio/measure``; what has no value (a hole) has no metric.

    Names hold what both trackers accept: letters, digits, ``_ - . /`` and spaces.
    """
    from eval.aggregate import (
        tables,
    )  # like `frame` below: pandas and scipy, which the start of a run need not wait for

    named = {
        "/".join(filter(None, (row.label, block.ratio, block.bucket, measure))): value
        for block in tables(view, compare=False)
        for row in block.rows
        for measure, value in {
            "average": row.average,
            "category_average": row.category_average,
            "delta": row.delta,
            "rank": row.rank,
            "kept": row.kept,
            **row.fidelity,
            **{f"task/{task}": score for task, score in zip(block.tasks, row.scores, strict=True)},
        }.items()
    }
    return {re.sub(r"[^\w./ -]", "_", name): value for name, value in named.items() if math.isfinite(value)}


def samples(view: View) -> "pd.DataFrame":
    """A row a cell: `eval.scores.frame` with prediction and answers."""
    from eval.scores import frame

    cells = frame(view)
    keys = zip(cells.dataset, cells["sample"], cells.arm, strict=True)
    records = [view.cell(*key) for key in keys]
    return cells.assign(
        prediction=[record.prediction if record else "" for record in records],
        answers=[" | ".join(record.answers) if record else "" for record in records],
    )


def flat(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a nested config with dotted names."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, str(config)[:PARAM_LENGTH]


def _mlflow(plan: RunPlan, folder: Path, view: View) -> None:
    import mlflow

    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 wants this said; skinny has no database
    mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI") or (plan.results / "mlruns").resolve().as_uri())
    mlflow.set_experiment(PROJECT)
    with mlflow.start_run(run_name=f"{plan.name} {plan.model['name']}"):
        params = list(flat(plan.config))
        for start in range(0, len(params), PARAMS_A_CALL):
            mlflow.log_params(dict(params[start : start + PARAMS_A_CALL]))
        mlflow.log_metrics(metrics(view))
        mlflow.log_table(samples(view), "samples.json")
        mlflow.log_artifacts(str(folder))


def _wandb(plan: RunPlan, folder: Path, view: View) -> None:
    import wandb

    options: dict[str, Any] = {"project": PROJECT, "name": f"{plan.name} {plan.model['name']}", "group": plan.name}
    mode = os.environ.get("WANDB_MODE", "offline")
    plan.results.mkdir(parents=True, exist_ok=True)
    with wandb.init(**options, config=plan.config, dir=plan.results, mode=mode) as run:
        run.summary.update(metrics(view))
        pictures = {f"plots/{path.stem}": wandb.Image(str(path)) for path in sorted(folder.glob("plots/**/*.png"))}
        run.log({"samples": wandb.Table(dataframe=samples(view)), **pictures})
        files = wandb.Artifact(f"{plan.name}-{plan.model['name']}", type="results")
        files.add_dir(str(folder))
        run.log_artifact(files)
