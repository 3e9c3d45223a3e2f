"""Table 1 from the scores: a block a ratio, a row an arm, a column a task, and what is derived from them.

A hole is never a 0: a task without a score is blank and leaves the row without average and rank; a task with some
samples missing keeps its score, is counted, and the delta takes the full cache on the same samples.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pandas as pd
from scipy import stats

from eval import statistics
from eval.scores import frame, official, official_bucket
from eval.scoring import BUCKETS
from eval.statistics import Comparison
from eval.tasks import task_of
from eval.view import View
from selkv.errors import unknown

FULL = "full"
Score = Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Row:
    """One arm at one ratio.

    Attributes
    ----------
    arm : int
        Position in the manifest.
    label, method : str
        Name of the row, and of the method.
    exact : bool
        Whether the method meets the common budget exactly.
    scores : tuple of float
        Official score of each task in points; NaN where nothing was scored.
    scored, failed : tuple of int
        Samples of each task that were scored, and that ended in an error.
    average, category_average : float
        Mean over tasks, and mean over categories of the mean within each; NaN where a task is blank.
    delta : float
        Average minus the full cache's, on the samples that both have.
    rank : float
        Mean over tasks of the rank among the compressing methods; ties share the mean rank; NaN for the full cache and
        for methods with a blank task.
    buckets : tuple of float
        LongBench-E only: mean over tasks by length bucket.
    kept : float
        True share of cache entries that was kept, over all scored cells.
    fidelity : dict of str to float
        ``kl``, ``agreement``, ``attention_error``: mean over tasks of the task's mean; ``perplexity_ratio``: geometric
        mean; ``divergence``: median position, a text that never diverges counted with its length; ``same``: share of
        texts that never diverge. Empty where nothing was measured.
    versus_full, versus_baseline : Comparison or None
        Paired statistics.
    """

    arm: int
    label: str
    method: str
    exact: bool
    scores: tuple[float, ...]
    scored: tuple[int, ...]
    failed: tuple[int, ...]
    average: float
    category_average: float
    delta: float
    rank: float
    buckets: tuple[float, ...]
    kept: float
    fidelity: dict[str, float] = field(default_factory=dict)
    versus_full: Comparison | None = None
    versus_baseline: Comparison | None = None


@dataclass(frozen=True)
class Table:
    """A block: one model, benchmark and ratio (and length bucket).

    Attributes
    ----------
    model, data, ratio : str
    bucket : str
        LongBench-E's length bucket, or empty for all lengths.
    baseline : str
        Label of the row that is compared with besides the full cache, or empty.
    tasks : tuple of str
        Datasets, in the manifest's order.
    selected, expected : tuple of int
        Samples asked for, and rows of the whole file, by task.
    rows : tuple of Row
        The full cache first.
    """

    model: str
    data: str
    ratio: str
    bucket: str
    baseline: str
    tasks: tuple[str, ...]
    selected: tuple[int, ...]
    expected: tuple[int, ...]
    rows: tuple[Row, ...]


def tables(view: View, baseline: str | None = None, compare: bool = True) -> list[Table]:
    """All blocks of a run: by ratio, and for LongBench-E by length bucket within it.

    Parameters
    ----------
    view : View
        The run.
    baseline : str, optional
        Label or method to compare with besides the full cache.
    compare : bool
        Whether to compute the paired statistics.

    Raises
    ------
    UserError
        When the baseline is no arm of the run.
    """
    arms = view.manifest["arms"]
    if baseline is not None and not any(baseline in (arm["label"], arm["method"]) for arm in arms):
        raise unknown("baseline", baseline, {arm["label"] for arm in arms})
    cells = frame(view)
    buckets = ("", *BUCKETS) if view.manifest["data"] == "longbench_e" else ("",)
    return [
        _table(view, cells[cells.bucket == bucket] if bucket else cells, ratio, bucket, baseline, compare)
        for ratio in ratios(view)
        for bucket in buckets
    ]


def ratios(view: View) -> list[str]:
    """Ratios of the compressing arms, ascending; the full cache's own where there are no others."""
    arms = view.manifest["arms"]
    found = {arm["ratio"] for arm in arms if arm["method"] != FULL} or {arm["ratio"] for arm in arms}
    return sorted(found, key=Fraction)


def matrix(cells: pd.DataFrame, task: str, arms: Sequence[int], column: str) -> np.ndarray:
    """A column of the frame for one task as (samples, arms), NaN where there is no value."""
    chosen = cells[cells.dataset == task].pivot(index="sample", columns="arm", values=column)
    return chosen.reindex(columns=list(arms)).to_numpy(dtype=np.float64)


def _table(view: View, cells: pd.DataFrame, ratio: str, bucket: str, baseline: str | None, compare: bool) -> Table:
    manifest = view.manifest
    arms = [i for i, arm in enumerate(manifest["arms"]) if arm["method"] == FULL or arm["ratio"] == ratio]
    arms.sort(key=lambda i: manifest["arms"][i]["method"] != FULL)
    shares = {task: matrix(cells, task, arms, "share") for task in manifest["tasks"]}
    rows = _ranked(_rows(view, cells, shares, arms, official_bucket if bucket else official))
    chosen = next((row.label for row in rows if row.method != FULL and baseline in (row.label, row.method)), "")
    tasks = manifest["tasks"]
    return Table(
        **{"model": manifest["model"], "data": manifest["data"], "ratio": ratio, "bucket": bucket, "baseline": chosen},
        tasks=tuple(tasks),
        selected=tuple(len(shares[task]) if bucket else tasks[task]["selected"] for task in tasks),
        expected=tuple(tasks[task]["rows"] for task in tasks),
        rows=tuple(_compared(rows, shares, chosen) if compare else rows),
    )


def _rows(view: View, cells: pd.DataFrame, shares: dict[str, np.ndarray], arms: list[int], score: Score) -> list[Row]:
    full = next((column for column, arm in enumerate(arms) if view.manifest["arms"][arm]["method"] == FULL), None)
    rows = []
    for column, arm in enumerate(arms):
        facts, own = view.manifest["arms"][arm], cells[cells.arm == arm]
        failed = own[own.state == "failed"].dataset.value_counts()
        columns = {task: values[:, column] for task, values in shares.items()}
        scores = {task: score(values[~np.isnan(values)]) for task, values in columns.items()}
        used = {task: value for task, value in scores.items() if len(shares[task])}
        rows.append(
            Row(
                **{"arm": arm, "label": facts["label"], "method": facts["method"], "exact": facts["exact"]},
                scores=tuple(scores.values()),
                scored=tuple(int((~np.isnan(values)).sum()) for values in columns.values()),
                failed=tuple(int(failed.get(task, 0)) for task in columns),
                average=_mean(used.values()),
                category_average=category_average(used),
                delta=np.nan if full in (None, column) else _delta(shares, column, full, score),
                rank=np.nan,
                buckets=_buckets(own) if view.manifest["data"] == "longbench_e" else (),
                kept=float(own.kept.sum() / own.total.sum()) if own.total.sum() else np.nan,
                fidelity=_fidelity(own),
            )
        )
    return rows


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return float(np.mean(known)) if known else np.nan


def category_average(scores: Mapping[str, float]) -> float:
    """Mean over categories of the mean over each category's tasks; NaN where a task is."""
    categories: dict[str, list[float]] = {}
    for task, score in scores.items():
        categories.setdefault(task_of(task).category, []).append(score)
    return _mean(map(_mean, categories.values()))


def _delta(shares: dict[str, np.ndarray], column: int, reference: int, score: Score) -> float:
    """Difference of the two averages on the samples that both arms have."""
    pairs = [values[:, [column, reference]] for values in shares.values() if len(values)]
    both = [values[~np.isnan(values).any(axis=1)] for values in pairs]
    return _mean(score(values[:, 0]) for values in both) - _mean(score(values[:, 1]) for values in both)


def _buckets(own: pd.DataFrame) -> tuple[float, ...]:
    scored = own[own.state == "scored"]
    means = []
    for bucket in BUCKETS:
        part = scored[scored.bucket == bucket].groupby("dataset", sort=False).share
        means.append(_mean(official_bucket(values.to_numpy()) for _, values in part))
    return tuple(means)


def _fidelity(own: pd.DataFrame) -> dict[str, float]:
    measured = own[own.kl.notna()]
    if measured.empty:
        return {}
    logs = measured.assign(perplexity_ratio=np.log(measured.perplexity_ratio.astype(float)))
    names = ["kl", "agreement", "perplexity_ratio", "same", "attention_error"]
    means = logs.groupby("dataset", sort=False)[names].mean().mean()
    means["perplexity_ratio"] = np.exp(means["perplexity_ratio"])
    divergence = measured.divergence.astype(float).fillna(measured.generated.astype(float)).median()
    return {name: float(means[name]) for name in names} | {"divergence": float(divergence)}


def _ranked(rows: list[Row]) -> list[Row]:
    """Rows with their average rank; a method with a blank task is left out of the ranking."""
    candidates = [i for i, row in enumerate(rows) if row.method != FULL and not np.isnan(row.average)]
    if not candidates:
        return rows
    scores = np.array([rows[i].scores for i in candidates])  # (methods, tasks)
    used = ~np.isnan(scores).all(axis=0)
    ranks = stats.rankdata(-scores[:, used], method="average", axis=0).mean(axis=1)
    found = dict(zip(candidates, ranks, strict=True))
    return [replace(row, rank=float(found.get(i, np.nan))) for i, row in enumerate(rows)]


def _compared(rows: list[Row], shares: dict[str, np.ndarray], baseline: str) -> list[Row]:
    """Rows with their paired statistics; Holm's correction is over the compressing methods of the block."""
    points = [100 * values for values in shares.values() if len(values)]
    methods = [i for i, row in enumerate(rows) if row.method != FULL]
    to_full = _against([i for i, row in enumerate(rows) if row.method == FULL], methods, points)
    to_baseline = _against([i for i in methods if rows[i].label == baseline], methods, points)
    return [replace(row, versus_full=to_full.get(i), versus_baseline=to_baseline.get(i)) for i, row in enumerate(rows)]


def _against(reference: list[int], methods: list[int], points: list[np.ndarray]) -> dict[int, Comparison]:
    others = [i for i in methods if i not in reference]
    if not reference or not others:
        return {}
    base = [values[:, reference[0]] for values in points]
    return dict(zip(others, statistics.compare([values[:, others] for values in points], base), strict=True))
