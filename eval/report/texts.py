"""The samples of a run and what every arm answered, in flat columns: a file of 20,000 answers stays small and fast."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eval.plots.measures import FIDELITY, Fidelity, Numbers, counter
from eval.records import Record

Column = list[Any]


def samples(of: Numbers) -> list[dict[str, Any]]:
    """Question, gold answers and lengths of every sample that has a record, in the manifest's order."""
    return [
        {"task": task, "id": r.id, "question": r.question, "answers": r.answers, "length": r.length, "n": _tokens(row)}
        for task, row in _rows(of)
        for r in [next(record for record in row if record is not None)]
    ]


def cell_columns(of: Numbers) -> dict[str, Any]:
    """Columns of the cells, sample after sample, arm after arm; null where a cell has no value."""
    records = [record for _, row in _rows(of) for record in row]
    done = [record if record is not None and record.error is None else None for record in records]
    names = dict.fromkeys(name for record in done if record is not None for name in record.counters)
    measures = [measure for measure in FIDELITY if measure.key != "same"]

    def column(take: Callable[[Record], Any]) -> Column:
        return [None if record is None else take(record) for record in done]

    def fidelity(measure: Fidelity) -> Column:
        return column(lambda record: _fidelity(record, measure))

    def mean(name: str) -> Column:
        return column(lambda record: _mean(record.counters.get(name)))

    return {
        "score": _scores(of),
        "prediction": column(lambda r: r.prediction),
        "error": [None if record is None else record.error for record in records],
        "looped": column(lambda r: int(r.looped)),
        "kept": column(lambda r: sum(r.kept)),
        "total": column(lambda r: sum(r.total)),
        "generated": column(lambda r: r.generated),
        "kv_bytes": column(lambda r: r.kv_bytes),
        "batch_seconds": column(lambda r: _short(r.batch_seconds)),
        "batch_rows": column(lambda r: r.batch_rows),
        "more": {
            **{measure.name: fidelity(measure) for measure in measures},
            "First divergence, token": column(lambda r: (r.fidelity or {}).get("divergence")),
            **{counter(name).name: mean(name) for name in names},
        },
    }


def _rows(of: Numbers) -> list[tuple[int, list[Record | None]]]:
    """Task and records of each sample; samples without any record are left out."""
    rows = [
        (task, [of.view.records.get(key) for key in keys])
        for task, name in enumerate(of.tasks)
        for keys in of.view.manifest["cells"].get(name, ())
    ]
    return [(task, row) for task, row in rows if any(record is not None for record in row)]


def _scores(of: Numbers) -> Column:
    """Shares in the frame's order, which is the manifest's."""
    width = len(of.arms)
    present = (of.cells.state != "missing").to_numpy().reshape(-1, width).any(axis=1)
    shares = of.cells.share.to_numpy(dtype=np.float64).reshape(-1, width)[present].ravel().tolist()
    return [None if np.isnan(share) else round(share, 4) for share in shares]


def _tokens(row: list[Record | None]) -> int:
    return max((record.n for record in row if record is not None), default=0)


def _fidelity(record: Record, measure: Fidelity) -> float | None:
    value: Any = (record.fidelity or {}).get(measure.key)
    value = _mean(value) if isinstance(value, list) else value
    return None if value is None else _short(measure.factor * value)


def _mean(values: list[float] | None) -> float | None:
    return _short(float(np.mean(values))) if values else None


def _short(value: float) -> float | None:
    """Four digits; null where a model's own numbers were not finite, which JSON cannot say."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
