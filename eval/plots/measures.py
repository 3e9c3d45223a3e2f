"""Numbers behind the plots and the report: from the records of a run to means, intervals and values by layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eval.aggregate import FULL, Row, Table, matrix, tables
from eval.records import Record
from eval.scores import frame
from eval.statistics import bootstrap, stratified_mean
from eval.tasks import task_of
from eval.view import View

Array = NDArray[np.float64]
DRAWS = 2_000  # of the bands; the paired intervals of the tables use more


class Counter(NamedTuple):
    """What a plot writes at a counter's axis, a clause that explains it, and the value it cannot exceed (if any)."""

    name: str
    what: str = ""
    top: float | None = None


COUNTERS = {  # a number a layer each; plots show its mean over the samples
    "routed": Counter(
        "Routed share of the evicted entries", "evicted entries that are merged into a kept one, of all evicted", 1.0
    ),
    "dropped": Counter(
        "Dropped share of the evicted entries", "evicted entries that no kept one takes in, of all evicted", 1.0
    ),
    "gate_zero": Counter(
        "Zero gates among the routed entries", "routed entries whose weight is 0, so that they add nothing", 1.0
    ),
    "mean_gate": Counter("Mean gate", "weight with which a routed entry enters its target, mean over them", 1.0),
    "max_log_ratio": Counter(
        "Largest log R",
        "R: attention on a kept entry with all that was merged into it, over its own attention; the layer's largest",
    ),
    "union": Counter("Union of the heads' choices, entries", "entries that at least one head would keep"),
    "floored": Counter(
        "Attentions raised to the floor",
        "kept entries whose attention is so small that R is taken with a floor (eps) in its place; their number",
    ),
    "evicted_first_share": Counter(
        "Attention on an evicted first token",
        "share of the attention that the first token had where it is evicted; much of it ruins a model",
        1.0,
    ),
    "attention_error": Counter(
        "Relative error of the attention output", "distance to the full cache's output, over that output's norm"
    ),
}


class Interval(NamedTuple):
    """A mean over tasks with its bootstrap interval (NaN without one) and its number of samples."""

    mean: float
    low: float
    high: float
    samples: int

    def exp(self) -> "Interval":
        """The interval of a geometric mean from that of the logarithms."""
        mean, low, high = np.exp(self[:3]).tolist()
        return Interval(mean, low, high, self.samples)


class Fidelity(NamedTuple):
    """A measure of closeness to the full cache: key, name, whether lower is better, decimals, factor, log scale, top.

    `top` is the value that it cannot exceed.
    """

    key: str
    name: str
    lower: bool
    digits: int
    factor: float = 1.0
    log: bool = False
    top: float | None = None


FIDELITY = (
    Fidelity("kl", "KL divergence, nats", True, 4),
    Fidelity("agreement", "Top-1 agreement, %", False, 2, factor=100.0, top=100.0),
    Fidelity("perplexity_ratio", "Perplexity ratio", True, 3, log=True),
    Fidelity("same", "Same text as full, %", False, 1, factor=100.0, top=100.0),
    Fidelity("attention_error", "Attention error", True, 4),
)


@dataclass(frozen=True)
class Numbers:
    """A run, scored and compared.

    Attributes
    ----------
    view : View
    cells : DataFrame
        See `eval.scores.frame`.
    tables : list of Table
        One a ratio, all lengths.
    rows : dict of int to Row
        By position of the arm in the manifest.
    """

    view: View
    cells: pd.DataFrame
    tables: list[Table]
    rows: dict[int, Row]

    @property
    def arms(self) -> list[dict[str, Any]]:
        """Arms of the manifest."""
        return list(self.view.manifest["arms"])

    @property
    def full(self) -> int | None:
        """Position of the full cache's arm."""
        return next((i for i, arm in enumerate(self.arms) if arm["method"] == FULL), None)

    @property
    def tasks(self) -> list[str]:
        """Datasets, in the manifest's order."""
        return list(self.view.manifest["tasks"])

    @property
    def categories(self) -> dict[str, list[str]]:
        """Datasets by category, in the manifest's order."""
        found: dict[str, list[str]] = {}
        for task in self.tasks:
            found.setdefault(task_of(task).category, []).append(task)
        return found


def numbers(view: View, baseline: str | None = None) -> Numbers:
    """Score and compare the cells of a run."""
    found = [table for table in tables(view, baseline) if not table.bucket]
    return Numbers(view, frame(view), found, {row.arm: row for table in reversed(found) for row in table.rows})


def ratio_of(arm: dict[str, Any]) -> float:
    """Ratio of an arm as a number."""
    return float(Fraction(arm["ratio"]))


def name_of(arm: dict[str, Any]) -> str:
    """Label and ratio of an arm."""
    return str(arm["label"]) if arm["method"] == FULL else f"{arm['label']}  {arm['ratio']}"


def scores(of: Numbers, tasks: Sequence[str], draws: int = DRAWS) -> list[Interval | None]:
    """Mean score over some tasks, in points, with its interval, for each arm."""
    return intervals([matrix(of.cells, task, range(len(of.arms)), "score") for task in tasks], draws)


def fidelity(of: Numbers, measure: Fidelity, draws: int = DRAWS) -> list[Interval | None]:
    """A fidelity measure of each arm over all tasks where it was measured; a geometric mean where it is a ratio."""
    values = [measure.factor * matrix(of.cells, task, range(len(of.arms)), measure.key) for task in of.tasks]
    values = [np.log(task) if measure.log else task for task in values if not np.isnan(task).all()]
    if not values:
        return [None for _ in of.arms]
    found = intervals(values, draws)
    return [each and each.exp() for each in found] if measure.log else found


def intervals(tasks: Sequence[Array], draws: int = DRAWS) -> list[Interval | None]:
    """Mean over tasks of the mean within a task, with a bootstrap interval, for each arm.

    Parameters
    ----------
    tasks : sequence of (samples, arms) arrays
        NaN where a cell is missing; a sample counts for the arms that have it.

    Returns
    -------
    list of Interval or None
        None for an arm without a sample in one of the tasks.
    """
    found: list[Interval | None] = [None] * (tasks[0].shape[1] if tasks else 0)
    for arms, complete in _alike(tasks):
        if all(map(len, complete)):
            low, high = bootstrap(complete, draws)
            samples = sum(map(len, complete))
            for arm, mean, *ends in zip(arms, stratified_mean(complete), low, high, strict=True):
                found[arm] = Interval(float(mean), float(ends[0]), float(ends[1]), samples)
    return found


def _alike(tasks: Sequence[Array]) -> Iterator[tuple[list[int], list[Array]]]:
    """Arms grouped by the samples they have, with those samples only: the bootstrap takes no NaN."""
    groups: dict[bytes, list[int]] = {}
    for arm in range(tasks[0].shape[1] if tasks else 0):
        groups.setdefault(b"".join(np.isnan(task[:, arm]).tobytes() for task in tasks), []).append(arm)
    for arms in groups.values():
        yield arms, [task[~np.isnan(task[:, arms[0]])][:, arms] for task in tasks]


def by_arm(view: View) -> list[list[Record]]:
    """Results of each arm over all samples; missing and failed cells left out."""
    found: list[list[Record]] = [[] for _ in view.manifest["arms"]]
    for row in (row for rows in view.manifest["cells"].values() for row in rows):
        for records, key in zip(found, row, strict=True):
            record = view.records.get(key)
            if record is not None and record.error is None:
                records.append(record)
    return found


def budgets(arms: Sequence[Sequence[Record]]) -> list[Array | None]:
    """Share of each layer's entries that an arm keeps, over all samples; (layers,), None without records."""
    found: list[Array | None] = []
    for records in arms:
        kept = np.sum([r.kept for r in records], axis=0, dtype=np.float64)
        total = np.sum([r.total for r in records], axis=0, dtype=np.float64)
        found.append(np.divide(kept, total, out=np.zeros_like(kept), where=total > 0) if np.ndim(kept) else None)
    return found


def layer_values(arms: Sequence[Sequence[Record]]) -> dict[str, list[Array | None]]:
    """Mean counters and attention errors by layer: name -> one (layers,) array an arm, None where an arm lacks it."""
    seen = dict.fromkeys(name for records in arms for record in records for name in record.counters)
    names = [*(name for name in COUNTERS if name in seen), *(name for name in seen if name not in COUNTERS)]
    found = {name: [_mean([r.counters.get(name) for r in records]) for records in arms] for name in names}
    errors = [_mean([(r.fidelity or {}).get("attention_error") for r in records]) for records in arms]
    return found | ({"attention_error": errors} if any(error is not None for error in errors) else {})


def counter(name: str) -> Counter:
    """What a plot says of a counter; of one that a method brings along, its name."""
    return COUNTERS.get(name, Counter(name.replace("_", " ").capitalize()))


def _mean(values: Sequence[Sequence[float] | None]) -> Array | None:
    known = [value for value in values if value]
    return np.mean(known, axis=0, dtype=np.float64) if known else None
