"""A run's cells as one tidy table: a row a cell, scored; and the official score of a set of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from eval.records import Record
from eval.scoring import BUCKETS, Scoring, score_row
from eval.tasks import TASKS, base_name, task_of
from eval.view import View
from selkv.errors import UserError

FIDELITY = ("kl", "agreement", "perplexity_ratio", "divergence", "attention_error")


def scoring_of(view: View) -> Scoring:
    """The scoring that the run's manifest names."""
    return Scoring(view.manifest["scoring"]["name"], view.manifest["scoring"]["code_sim"])


def scoring_text(view: View) -> str:
    """How a run was scored, in words: LongBench's scorer for its own tasks, the metrics by name for others."""
    scoring = scoring_of(view)
    if any(base_name(dataset) in TASKS for dataset in view.manifest["tasks"]):
        return str(scoring)
    metrics = ", ".join(dict.fromkeys(task_of(dataset).metric for dataset in view.manifest["tasks"]))
    return f"metrics of this benchmark: {metrics}" + ("" if scoring.name == "official" else f" ({scoring.name})")


def frame(view: View) -> pd.DataFrame:
    """All cells that a run asks for, in the manifest's order: dataset, then sample, then arm.

    The order of lines in the cells' files, and the records that no cell of the run names, do not matter.

    Returns
    -------
    DataFrame
        Columns ``model, data, dataset, category, sample, id, length, bucket`` (LongBench-E's), ``arm`` (position in
        the manifest), ``label, method, ratio``; ``state`` (``scored``, ``failed``, ``missing``); ``score`` (0 to 100
        points) and ``share`` (the same in [0, 1], as the scorer gave it), NaN unless scored; ``n, generated, kept,
        total`` (entries over all layers), ``looped``; ``kl, agreement, perplexity_ratio, divergence`` (NaN also where
        the texts never diverge), ``same`` (1.0 where they never do) and ``attention_error`` (mean over layers), NaN
        without fidelity.
    """
    scoring = scoring_of(view)
    arms = view.manifest["arms"]
    rows = [
        _row(view.cell(dataset, sample, number), scoring)
        | {"model": view.manifest["model"], "data": view.manifest["data"]}
        | {"dataset": dataset, "category": task_of(dataset).category, "sample": sample, "arm": number}
        | {name: arm[name] for name in ("label", "method", "ratio")}
        for dataset in view.manifest["tasks"]
        for sample in range(len(view.manifest["cells"].get(dataset, ())))
        for number, arm in enumerate(arms)
    ]
    first = [
        "model",
        "data",
        "dataset",
        "category",
        "sample",
        "id",
        "length",
        "bucket",
        "arm",
        "label",
        "method",
        "ratio",
    ]
    cells = pd.DataFrame(rows, columns=first + COLUMNS)
    # A sample is the same under every arm: a missing cell takes these facts from its neighbours.
    facts = ["id", "length", "bucket"]
    cells[facts] = cells.groupby(["dataset", "sample"], sort=False)[facts].transform("first")
    return cells


COLUMNS = ["state", "score", "share", "n", "generated", "kept", "total", "looped", *FIDELITY[:4], "same", FIDELITY[4]]


def _row(record: Record | None, scoring: Scoring) -> dict[str, Any]:
    if record is None:
        return {"state": "missing"}
    facts = {"id": record.id, "length": record.length, "bucket": bucket(record.length)}
    if record.error is not None:
        return facts | {"state": "failed"}
    share = _share(record, scoring)
    return facts | {
        "state": "scored",
        "score": 100 * share,
        "share": share,
        "n": record.n,
        "generated": record.generated,
        "kept": sum(record.kept),
        "total": sum(record.total),
        "looped": record.looped,
        **_fidelity(record.fidelity or {}),
    }


def _fidelity(values: Mapping[str, Any]) -> dict[str, Any]:
    if not values:
        return {}
    errors = values.get("attention_error") or [np.nan]
    same = float(values.get("divergence") is None)
    return {name: values.get(name) for name in FIDELITY} | {"same": same, "attention_error": float(np.mean(errors))}


def bucket(length: int) -> str:
    """LongBench-E's bucket of a sample's length."""
    return BUCKETS[(length >= 4000) + (length >= 8000)]


def _share(record: Record, scoring: Scoring) -> float:
    classes = tuple(record.all_classes) if record.all_classes is not None else None
    try:
        return _cached(record.dataset, record.prediction, tuple(record.answers), classes, scoring)
    except (IndexError, TypeError, ValueError):  # as `score_row` says: answers or classes that the metric cannot read
        task = task_of(record.dataset)
        raise UserError(
            f"{record.dataset} {record.id} cannot be scored by {task.metric}: its answers are {record.answers!r}, its "
            f"classes {record.all_classes!r}; correct that row of the data, or choose other data.tasks"
        ) from None


# Table and report score the same cells one after the other; a long summary takes a tenth of a second.
@cache
def _cached(
    dataset: str, prediction: str, answers: tuple[str, ...], classes: tuple[str, ...] | None, by: Scoring
) -> float:
    return score_row(dataset, prediction, answers, classes, by)


def official(shares: np.ndarray) -> float:
    """Score of a dataset in percent as LongBench rounds it (see `eval.scoring.score_dataset`); NaN without samples.

    Parameters
    ----------
    shares : (samples,) array
        Scores in [0, 1], in file order.
    """
    return round(100 * sum(shares.tolist(), 0.0) / len(shares), 2) if len(shares) else np.nan


def official_bucket(shares: np.ndarray) -> float:
    """Score of a length bucket of LongBench-E, which is rounded in another way (see `eval.scoring.score_buckets`)."""
    return float(round(100 * np.mean(shares), 2)) if len(shares) else np.nan
