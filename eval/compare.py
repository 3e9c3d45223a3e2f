"""A run beside published numbers: inside the run's interval, outside it, or not comparable and why.

A published number is known to its last digit only, so the interval is widened by half of that. A difference of two
methods is held against the paired interval, which is far narrower than that of a score.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from eval.aggregate import matrix
from eval.scores import frame
from eval.statistics import bootstrap, stratified_mean
from eval.tasks import ENGLISH
from eval.view import View
from selkv.errors import UserError

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"
COLUMNS = ("quantity", "model", "method", "minus", "ratio", "task", "value", "max_prompt_tokens", "status", "source")
OTHER_MODEL = "model not in these runs"
INSIDE, OUTSIDE, NOT = "inside", "outside", "not comparable"
AVERAGE = "average"  # over the 16 English tasks


@dataclass(frozen=True)
class Reference:
    """A published number: a line of ``results/reference/*.csv``.

    Attributes
    ----------
    quantity : str
        ``score`` (points on LongBench, official scorer), or something that a run does not measure.
    model, method, ratio : str
        Names as in the configuration.
    minus : str
        Method that is subtracted, or empty for a score itself.
    task : str
        A dataset, or ``average`` over the 16 English ones.
    value : str
        As printed: its last digit is its precision.
    max_prompt_tokens : str
        The prompt limit, or empty where the source has none.
    status : {"published", "unconfirmed"}
        Whether the number was read at its source.
    source : str
        Where it stands.
    """

    quantity: str
    model: str
    method: str
    minus: str
    ratio: str
    task: str
    value: str
    max_prompt_tokens: str
    status: str
    source: str

    @property
    def half_digit(self) -> float:
        """Half a unit of the last printed digit."""
        return 0.5 * 10.0 ** -len(self.value.partition(".")[2])


@dataclass(frozen=True)
class Verdict:
    """What a run says to a published number; `value`, `low` and `high` are NaN where it is not comparable."""

    reference: Reference
    verdict: str
    reason: str = ""
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan


class _NotComparable(Exception):
    """Says why."""


def read_references(paths: Iterable[Path] | None = None) -> list[Reference]:
    """Published numbers of some files, by default of all in ``results/reference``.

    Raises
    ------
    UserError
        When a file is missing or has other columns.
    """
    references: list[Reference] = []
    for path in (sorted(REFERENCE.glob("*.csv")) or [REFERENCE]) if paths is None else paths:
        if not path.is_file():
            raise UserError(f"no reference file {path}; give a CSV with the columns {', '.join(COLUMNS)}")
        references += _parsed(path)
    return references


def _parsed(path: Path) -> list[Reference]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise UserError(f"{path} has the columns {rows.fieldnames}; a reference file has {', '.join(COLUMNS)}")
            return [_reference(row, f"{path}:{rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise UserError(f"{path} cannot be read as CSV in UTF-8 ({problem}); save it so") from None


def _reference(row: dict[str, Any], where: str) -> Reference:
    if None in row or None in row.values():
        raise UserError(f"{where}: {len(COLUMNS)} fields are needed: {', '.join(COLUMNS)}; quote a field with commas")
    for name in ("value", "ratio"):
        try:
            Fraction(row[name])
        except (ValueError, ZeroDivisionError):
            raise UserError(f"{where}: {name} is {row[name]!r}; it must be a number, e.g. 0.25") from None
    return Reference(**row)


def compare(views: Sequence[View], references: Iterable[Reference], seed: int = 0) -> list[Verdict]:
    """A verdict for each published number of the models that were run, in the references' order.

    Parameters
    ----------
    views : sequence of View
        Runs; of several that fit, the first comparable one speaks.
    references : iterable of Reference
        Published numbers.
    seed : int
        Of the bootstrap.
    """
    cells = [(view, frame(view)) for view in views]
    verdicts = []
    for reference in references:
        own = [_verdict(view, scored, reference, seed) for view, scored in cells if _model(view) == reference.model]
        verdicts.append(
            next((verdict for verdict in own if verdict.verdict != NOT), None)
            or next(iter(own), Verdict(reference, NOT, OTHER_MODEL))
        )
    return verdicts


def _model(view: View) -> str:
    return str(view.manifest["model"])


def _verdict(view: View, cells: Any, reference: Reference, seed: int) -> Verdict:
    try:
        _same_protocol(view.manifest, reference)
        tasks = list(ENGLISH) if reference.task == AVERAGE else [reference.task]
        _same_samples(view.manifest, tasks)
        arm = _arm(view.manifest, reference.method, reference.ratio)
        minus = _arm(view.manifest, reference.minus, reference.ratio) if reference.minus else None
        points = [_points(cells, task, arm, minus) for task in tasks]
    except _NotComparable as reason:
        return Verdict(reference, NOT, str(reason))
    value = float(stratified_mean(points)[0])
    low, high = (float(end[0]) for end in bootstrap(points, seed=seed))
    margin = reference.half_digit
    inside = low - margin <= float(reference.value) <= high + margin
    return Verdict(reference, INSIDE if inside else OUTSIDE, "", value, low, high)


def _same_protocol(manifest: dict[str, Any], reference: Reference) -> None:
    if reference.quantity != "score":
        raise _NotComparable("a run measures no speed: selkv efficiency does")
    if manifest["data"] != "longbench":
        raise _NotComparable(f"other data: {manifest['data']}")
    if manifest["scoring"]["name"] != "official":
        raise _NotComparable(f"other scoring: {manifest['scoring']['name']}")
    protocol = manifest["protocol"]
    wanted = {"truncation": "official", "compress": "prompt"}
    if reference.max_prompt_tokens:
        wanted["max_prompt_tokens"] = reference.max_prompt_tokens
    for name, value in wanted.items():
        if str(protocol.get(name)) != value:
            raise _NotComparable(f"other protocol: {name} {protocol.get(name)}, not {value}")


def _same_samples(manifest: dict[str, Any], tasks: Sequence[str]) -> None:
    absent = [task for task in tasks if task not in manifest["tasks"]]
    if absent:
        raise _NotComparable(f"other samples: without {', '.join(absent)}")
    for task in tasks:
        counts = manifest["tasks"][task]
        if counts["selected"] != counts["rows"]:
            raise _NotComparable(f"other samples: {counts['selected']} of {counts['rows']} in {task}")


def _arm(manifest: dict[str, Any], method: str, ratio: str) -> int:
    """Position of a method with its default label; the full cache has no ratio."""
    for number, arm in enumerate(manifest["arms"]):
        if arm["label"] == method and (method == "full" or Fraction(arm["ratio"]) == Fraction(ratio)):
            return number
    raise _NotComparable(f"{method} at ratio {ratio} was not run")


def _points(cells: Any, task: str, arm: int, minus: int | None) -> np.ndarray:
    """Points of one arm, or its differences to another, as (samples, 1)."""
    points = 100 * matrix(cells, task, [arm] if minus is None else [arm, minus], "share")
    missing = int(np.isnan(points).any(axis=1).sum())
    if missing:
        raise _NotComparable(f"other samples: {missing} of {len(points)} missing in {task}")
    return points if minus is None else points[:, :1] - points[:, 1:]
