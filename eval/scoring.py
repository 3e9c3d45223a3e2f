"""From raw predictions to a dataset's score: post-processing, best answer, mean, LongBench-E's length buckets.

Source of the rules: THUDM/LongBench, commit 2e00731f (eval.py). A row is a mapping with LongBench's fields
``pred``, ``answers``, ``all_classes`` and, for the buckets, ``length``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eval import metrics, metrics_strict
from eval.tasks import Task, task_of
from selkv.errors import unknown

Row = Mapping[str, Any]

NAMES = ("official", "strict")
PERCENT = {"difflib": metrics.difflib_percent, "levenshtein": metrics.levenshtein_percent}
BUCKETS = ("0-4k", "4-8k", "8k+")
GOLD = {  # what must stand in each answer where a metric takes more than any text
    "count": (r"^\s*\d+\s*$", 'be whole numbers ("12")'),
    "retrieval": (r"Paragraph \d", 'name a paragraph ("Paragraph 12")'),
    "retrieval_zh": (r"段落\d", 'name a paragraph ("段落12")'),
}


@dataclass(frozen=True)
class Scoring:
    """How predictions are scored.

    Attributes
    ----------
    name : {"official", "strict"}
        ``official`` equals LongBench's scorer; ``strict`` mends its quirks (listed in `eval.metrics_strict`).
    code_sim : {"difflib", "levenshtein"}
        What stands behind the official code similarity: difflib is what LongBench's requirements install,
        levenshtein what a machine with python-Levenshtein computes (1 to 3 points higher). ``strict`` ignores it.

    Raises
    ------
    UserError
        If either is unknown.
    """

    name: str = "official"
    code_sim: str = "difflib"

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise unknown("scoring", self.name, NAMES)
        if self.code_sim not in PERCENT:
            raise unknown("code similarity back end (code_sim)", self.code_sim, PERCENT)

    def __str__(self) -> str:
        if self.name == "strict":
            return "strict scoring (rouge-score, rapidfuzz, quirks mended): not comparable with published numbers"
        return f"official scoring (rouge 1.0.1, code similarity by {self.code_sim})"


def score_row(
    dataset: str, prediction: str, answers: Sequence[str], all_classes: Sequence[str] | None, scoring: Scoring
) -> float:
    """Score one prediction: the best over its answers (the mean where the task says so), 0 without any.

    Parameters
    ----------
    dataset : str
        Name of the task; LongBench's with or without the suffix ``_e``.
    prediction : str
        Raw text of the model.
    answers : sequence of str
        Gold answers.
    all_classes : sequence of str or None
        Labels, for trec and lsht.
    scoring : Scoring
        Metrics to use.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    UserError
        If no benchmark has such a dataset.
    IndexError
        passage_retrieval: if an answer names no paragraph.
    TypeError
        trec, lsht: if `all_classes` is None.
    """
    task = task_of(dataset)
    metric = _metric(task, all_classes, scoring)
    if task.first_line:
        prediction = _first_line(prediction, scoring)
    scores = [metric(prediction, answer) for answer in answers]
    return sum(scores) / len(scores) if task.mean and scores else max(scores, default=0.0)


def gold_fault(dataset: str, answers: Sequence[str]) -> str:
    """What keeps a task's metric from reading its answers, in words; the empty string where nothing does."""
    pattern, wanted = GOLD.get(task_of(dataset).metric, ("", ""))
    wrong = next((answer for answer in answers if not re.search(pattern, answer)), None)
    return "" if wrong is None else f"answers must {wanted}, not {wrong!r}"


def score_dataset(dataset: str, rows: Sequence[Row], scoring: Scoring) -> float:
    """Mean score of a file of predictions in percent, rounded as LongBench rounds it.

    Every row is scored with the `all_classes` of the last one, as the official scorer does.

    Raises
    ------
    ZeroDivisionError
        If there are no rows.
    """
    # The order of the operations is the official one: another one rounds differently.
    return round(100 * sum(_scores(dataset, rows, scoring), 0.0) / len(rows), 2)


def score_buckets(dataset: str, rows: Sequence[Row], scoring: Scoring) -> dict[str, float]:
    """Mean score in percent by LongBench-E's length buckets; NaN where a bucket has no row.

    A row's ``length`` below 4000 is ``0-4k``, below 8000 ``4-8k``, else ``8k+``. The official scorer keeps lengths in a
    list of their own, so one row without a length shifts those behind it; that is kept.
    """
    lengths = [row["length"] for row in rows if "length" in row]
    by_bucket: dict[str, list[float]] = {bucket: [] for bucket in BUCKETS}
    for score, length in zip(_scores(dataset, rows, scoring), lengths, strict=False):
        by_bucket[BUCKETS[(length >= 4000) + (length >= 8000)]].append(score)
    # numpy's mean and rounding, as the official scorer: Python's round differently in the last digit.
    return {
        bucket: float(round(100 * np.mean(scores), 2)) if scores else np.nan for bucket, scores in by_bucket.items()
    }


def _scores(dataset: str, rows: Sequence[Row], scoring: Scoring) -> list[float]:
    all_classes = rows[-1].get("all_classes") if rows else None
    return [score_row(dataset, row["pred"], row["answers"], all_classes, scoring) for row in rows]


def _metric(task: Task, all_classes: Sequence[str] | None, scoring: Scoring) -> Callable[[str, str], float]:
    strict = scoring.name == "strict"
    # a metric without quirks stands in `eval.metrics` alone
    metric = getattr(metrics_strict if strict and hasattr(metrics_strict, task.metric) else metrics, task.metric)
    if task.metric == "classification":
        return partial(metric, all_classes=all_classes)
    if task.metric == "code_sim" and not strict:
        return partial(metric, percent=PERCENT[scoring.code_sim])
    return metric


def _first_line(prediction: str, scoring: Scoring) -> str:
    leading = None if scoring.name == "strict" else "\n"
    return prediction.lstrip(leading).split("\n")[0]
