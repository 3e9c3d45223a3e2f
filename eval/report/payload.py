"""The report's data: a run as plain JSON, numbers for the table and the plots, texts for the browser of samples."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from eval.aggregate import FULL, Row
from eval.grid import marks
from eval.notes import notes
from eval.plots.measures import (
    FIDELITY,
    Interval,
    Numbers,
    budgets,
    by_arm,
    counter,
    fidelity,
    layer_values,
    ratio_of,
    scores,
)
from eval.plots.style import PALETTE, styles
from eval.records import Record
from eval.report.findings import findings, identical
from eval.report.texts import cell_columns, samples
from eval.scores import scoring_text
from eval.scoring import BUCKETS
from eval.statistics import LEVEL, Comparison
from eval.tasks import task_of

Json = dict[str, Any]


def block(of: Numbers) -> Json:
    """Everything that the page shows of one run; see the scripts in ``assets`` for how it is used."""
    manifest = of.view.manifest
    series = list(dict.fromkeys(arm["label"] for arm in of.arms))
    baseline = next((table.baseline for table in of.tables if table.baseline), "")
    return {
        "name": f"{manifest['model']} · {manifest['data']} · {manifest['experiment']}",
        "facts": _facts(of),
        "findings": findings(of),
        "notes": notes(of.view, of.tables, statistics=True),
        "versions": [[name, str(version)] for name, version in sorted(manifest.get("versions", {}).items())],
        "level": LEVEL,
        "full": of.full,
        "counted": "LongBench's count" if manifest["data"].startswith("longbench") else "the data's own count",
        "series": [
            {"label": label, "css": "full-series" if label == FULL else f"c{PALETTE.index(style.color)}"}
            | {"mark": style.marker, "dash": style.dash, "hollow": style.hollow}
            for label, style in styles(series).items()
        ],
        "arms": [_arm(of, i, series.index(arm["label"])) for i, arm in enumerate(of.arms)],
        "tasks": [
            {"name": name, "category": task_of(name).category, "metric": task_of(name).metric} for name in of.tasks
        ],
        "categories": list(of.categories),
        "buckets": list(BUCKETS) if any(row.buckets for row in of.rows.values()) else [],
        "rows": _rows(of, baseline),
        "statistics": _statistics_columns(baseline),
        "fidelity": [
            {"name": measure.name, "digits": measure.digits, "up": measure.lower} for measure in _measured(of)
        ],
        "measures": [
            {"key": "score", "name": "Score", "digits": 2, "top": 100, "reference": True},
            *(
                {"key": "fidelity", "index": index, "reference": False}
                | {name: getattr(measure, name) for name in ("name", "digits", "top")}
                for index, measure in enumerate(_measured(of))
            ),
        ],
        **_by_layer(of),
        "samples": samples(of),
        "cells": cell_columns(of),
    }


def _facts(of: Numbers) -> list[list[str]]:
    manifest = of.view.manifest
    states = of.cells.state.value_counts()
    selected = sum(task["selected"] for task in manifest["tasks"].values())
    expected = sum(task["rows"] for task in manifest["tasks"].values())
    protocol = {name.replace("_", " "): value for name, value in manifest["protocol"].items() if value is not None}
    details = ", ".join(f"{name} {value}" for name, value in protocol.items() if name != "name")
    return [
        ["Model", manifest["model"]],
        ["Data", manifest["data"]],
        ["Experiment", manifest["experiment"]],
        ["Samples", f"{selected:,} of {expected:,} in {len(of.tasks)} task{'' if len(of.tasks) == 1 else 's'}"],
        ["Cells scored", f"{states.get('scored', 0):,} of {len(of.cells):,}"],
        ["Scoring", scoring_text(of.view)],
        ["Protocol", f"{protocol.get('name', '')} ({details})"],
        ["Device", str(manifest.get("device", "not recorded"))],
    ]


def _arm(of: Numbers, index: int, series: int) -> Json:
    arm = of.arms[index]
    params = ", ".join(f"{name}={value}" for name, value in arm["params"].items())
    return {
        **{name: arm[name] for name in ("label", "ratio", "exact")},
        **{"value": number(ratio_of(arm)), "series": series, "params": params, "note": arm.get("note") or ""},
        "kept": number(of.rows[index].kept if index in of.rows else math.nan),
    }


def _rows(of: Numbers, baseline: str) -> list[Json]:
    average = scores(of, of.tasks)
    categories = [scores(of, members) for members in of.categories.values()]
    tasks = [scores(of, [task]) for task in of.tasks]
    closeness = [fidelity(of, measure) for measure in _measured(of)]
    size = _mebibytes(of)
    rows: list[Json] = [
        {
            "average": _average(row.average, average[i]),
            "category_average": [number(row.category_average), None, None] if known(row.category_average) else None,
            "delta": _delta(row, row.versus_full),
            "identical": identical(of, i),
            "rank": number(row.rank),
            "p": number(row.versus_full.adjusted) if row.versus_full else None,
            "categories": [triple(values[i]) for values in categories],
            "tasks": [_average(score, values[i]) for score, values in zip(row.scores, tasks, strict=True)],
            "buckets": [number(value) for value in row.buckets],
            "statistics": _statistics(row, baseline),
            "fidelity": [triple(values[i]) for values in closeness],
            "mib": number(size[i]),
        }
        for i, row in sorted(of.rows.items())
    ]
    return [row | {"marks": found} for row, found in zip(rows, _marks(of, rows), strict=True)]


def _marks(of: Numbers, rows: Sequence[Json]) -> list[Json]:
    """Marks of every row by the name of what is marked: as `rows` names it, with a place where that is a list."""
    found: list[Json] = [{} for _ in rows]

    def mark(name: str, place: int | None = None, **how: Any) -> None:
        for table in of.tables:
            arms = [row.arm for row in table.rows if row.method != FULL]
            values = [rows[arm][name] if place is None else rows[arm][name][place] for arm in arms]
            means = [value[0] if isinstance(value, list) else value for value in values]
            known = [math.nan if mean is None else mean for mean in means]
            for arm, sign in zip(arms, marks(known, **how), strict=True):
                found[arm][name if place is None else f"{name}{place}"] = sign

    for name in ("average", "category_average"):
        mark(name)
    mark("delta", scale=False)
    mark("rank", better=-1)
    for name in ("categories", "tasks", "buckets"):
        for place in range(max(len(row[name]) for row in rows)):
            mark(name, place)
    for place, measure in enumerate(_measured(of)):
        mark("fidelity", place, digits=measure.digits, better=-1 if measure.lower else 1)
    return found


def _statistics_columns(baseline: str) -> list[Json]:
    def columns(name: str) -> list[Json]:
        return [
            {"name": f"Δ {name} low", "digits": 2, "signed": True},
            {"name": f"Δ {name} high", "digits": 2, "signed": True},
            {"name": f"p vs {name} (Holm)", "digits": 4, "up": True},
            *({"name": f"{what} vs {name}", "digits": 0} for what in ("Wins", "Ties", "Losses")),
            {"name": f"Detectable vs {name}", "digits": 2, "up": True},
        ]

    return columns(FULL) + (
        [{"name": f"Δ {baseline}", "digits": 2, "signed": True}, *columns(baseline)] if baseline else []
    )


def _statistics(row: Row, baseline: str) -> list[float | None]:
    second = [number(row.versus_baseline.delta) if row.versus_baseline else None, *_facts_of(row.versus_baseline)]
    return _facts_of(row.versus_full) + (second if baseline else [])


def _facts_of(pair: Comparison | None) -> list[float | None]:
    if pair is None:
        return [None] * 7
    values = (pair.low, pair.high, pair.adjusted, pair.wins, pair.ties, pair.losses, pair.detectable)
    return [number(value) for value in values]


def _measured(of: Numbers) -> list[Any]:
    return [measure for measure in FIDELITY if of.cells[measure.key].notna().any()]


def _mebibytes(of: Numbers) -> list[float]:
    """Mean size of an arm's cache over its samples."""
    return [
        float(np.mean([r.kv_bytes for r in records])) / 2**20 if records else math.nan for records in by_arm(of.view)
    ]


def _by_layer(of: Numbers) -> Json:
    records: Sequence[Sequence[Record]] = by_arm(of.view)
    return {
        "budget": [None if share is None else _list(share) for share in budgets(records)],
        "layers": {
            name: {
                **counter(name)._asdict(),
                "values": {str(i): _list(values) for i, values in enumerate(arms) if values is not None},
            }
            for name, arms in layer_values(records).items()
        },
    }


def _average(mean: float, interval: Interval | None) -> list[float | None] | None:
    """The official mean, which is rounded, with the interval around the exact one."""
    if not known(mean):
        return None
    return [number(mean), *(triple(interval) or [None] * 4)[1:]]


def _delta(row: Row, pair: Comparison | None) -> list[float | None] | None:
    if not known(row.delta):
        return None
    return [number(row.delta), number(pair.low) if pair else None, number(pair.high) if pair else None]


def triple(interval: Interval | None) -> list[float | None] | None:
    """Mean, low, high and samples for JSON."""
    return None if interval is None else [number(value) for value in interval]


def known(value: float | None) -> bool:
    """Whether there is a number."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> float | int | None:
    """Number for JSON in at most six significant digits; null for NaN and infinities."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _list(values: Iterable[float]) -> list[float | int | None]:
    return [number(value) for value in values]
