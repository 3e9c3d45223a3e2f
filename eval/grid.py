"""A table as text cells: columns once, for the console, Markdown, LaTeX and CSV alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from eval.aggregate import FULL, Row, Table
from eval.scoring import BUCKETS
from eval.statistics import Comparison
from eval.tasks import task_of

BEST, SECOND = "best", "second"
HOLE, APPROXIMATE = "*", "~"  # explained in the notes
FOOT = ("scored", "selected", "expected")

SHORT = {
    "narrativeqa": "NarrQA",
    "qasper": "Qasper",
    "multifieldqa_en": "MF-en",
    "multifieldqa_zh": "MF-zh",
    "hotpotqa": "Hotpot",
    "2wikimqa": "2Wiki",
    "musique": "MuSiQ",
    "dureader": "DuRead",
    "gov_report": "GovRep",
    "qmsum": "QMSum",
    "multi_news": "MNews",
    "vcsum": "VCSum",
    "trec": "TREC",
    "triviaqa": "Trivia",
    "samsum": "SAMSum",
    "lsht": "LSHT",
    "passage_count": "PCount",
    "passage_retrieval_en": "PR-en",
    "passage_retrieval_zh": "PR-zh",
    "lcc": "LCC",
    "repobench-p": "RB-P",
}


class Cell(NamedTuple):
    """Text of a cell, its rank in the column (`BEST`, `SECOND` or empty) and a sign that refers to a note."""

    text: str
    mark: str = ""
    sign: str = ""


class Column(NamedTuple):
    """A column: the group it stands under, its name (full and short), one cell a row, and the counts below it."""

    group: str
    name: str
    short: str
    cells: tuple[Cell, ...]
    foot: tuple[str, ...] = ("",) * len(FOOT)


@dataclass(frozen=True)
class Grid:
    """A titled set of columns over the same rows; `full` are the numbers of the rows that hold the full cache."""

    title: str
    labels: tuple[str, ...]
    full: frozenset[int]
    columns: tuple[Column, ...]
    foot: tuple[str, ...] = FOOT


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """A number as tables print it: blank for NaN, never a negative zero."""
    if np.isnan(value):
        return ""
    rounded = round(value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if sign and rounded else f"{rounded:.{digits}f}"


def title(table: Table) -> str:
    """Heading of a block."""
    bucket = f", length {table.bucket}" if table.bucket else ""
    return f"{table.model} on {table.data}, ratio {table.ratio}{bucket}"


def scores_grid(table: Table, categories: bool = True, fidelity: bool = True) -> Grid:
    """Table 1: the tasks by category, the averages, delta, rank, entries kept and fidelity.

    Parameters
    ----------
    table : Table
        A block.
    categories : bool
        Whether to show the average over categories.
    fidelity : bool
        Whether to show the fidelity, where it was measured.
    """
    columns = [_task(table, index) for index in range(len(table.tasks))]
    if not table.bucket:
        columns += [_bucket(table, index) for index in range(len(table.rows[0].buckets))]
    columns += _averages(table, categories)
    if fidelity and any(row.fidelity for row in table.rows):
        columns += _fidelity(table)
    return _grid(table, title(table), columns, FOOT)


def fidelity_grid(table: Table) -> Grid | None:
    """The fidelity of a block by itself, for pages that are too narrow for all columns; None where there is none."""
    measured = any(row.fidelity for row in table.rows)
    return _grid(table, f"{title(table)}: fidelity", _fidelity(table), ()) if measured else None


def statistics_grid(table: Table) -> Grid | None:
    """The paired comparisons of a block's compressing methods, or None where there are none."""
    table = replace(table, rows=tuple(row for row in table.rows if row.method != FULL))
    columns: list[Column] = []
    if any(row.versus_full for row in table.rows):
        columns += _comparison(table, FULL, lambda row: row.versus_full)
    if any(row.versus_baseline for row in table.rows):
        columns += _comparison(table, table.baseline, lambda row: row.versus_baseline)
    return _grid(table, f"{title(table)}: paired differences", columns, ()) if columns else None


def _grid(table: Table, name: str, columns: Sequence[Column], foot: tuple[str, ...]) -> Grid:
    full = frozenset(i for i, row in enumerate(table.rows) if row.method == FULL)
    return Grid(name, tuple(row.label for row in table.rows), full, tuple(columns), foot)


def _task(table: Table, index: int) -> Column:
    dataset = table.tasks[index]
    task = task_of(dataset)
    short = task.short or SHORT.get(task.name, task.name)
    column = _column(table, task.category, dataset, short, lambda row: row.scores[index])
    signs = [HOLE if 0 < row.scored[index] < table.selected[index] else "" for row in table.rows]
    cells = tuple(cell._replace(sign=sign) for cell, sign in zip(column.cells, signs, strict=True))
    counts = (min(row.scored[index] for row in table.rows), table.selected[index], table.expected[index])
    return column._replace(cells=cells, foot=tuple(map(str, counts)))


def _bucket(table: Table, index: int) -> Column:
    return _column(table, "By length", BUCKETS[index], BUCKETS[index], lambda row: row.buckets[index])


def _averages(table: Table, categories: bool) -> list[Column]:
    counts = (
        sum(map(min, zip(*(row.scored for row in table.rows), strict=True))),
        sum(table.selected),
        sum(table.expected),
    )
    average = _column(table, "All", "Avg", "Avg", lambda row: row.average)
    columns = [average._replace(foot=tuple(map(str, counts)))]
    if categories:
        columns.append(_column(table, "All", "Category avg", "CatAvg", lambda row: row.category_average))
    columns.append(_column(table, "All", "Δ to full", "Δ full", lambda row: row.delta, signed=True))
    columns.append(_column(table, "All", "Avg rank", "Rank", lambda row: row.rank, better=-1))
    kept = _column(table, "All", "Kept %", "Kept %", lambda row: 100 * row.kept, better=0)
    signs = ["" if row.exact else APPROXIMATE for row in table.rows]
    cells = tuple(cell._replace(sign=sign) for cell, sign in zip(kept.cells, signs, strict=True))
    return [*columns, kept._replace(cells=cells)]


def _fidelity(table: Table) -> list[Column]:
    def column(key: str, name: str, short: str, factor: float, digits: int, better: int) -> Column:
        return _column(
            table,
            "Fidelity",
            name,
            short,
            lambda row: factor * row.fidelity.get(key, np.nan),
            digits=digits,
            better=better,
        )

    return [
        column("kl", "KL to full", "KL", 1, 4, -1),
        column("agreement", "Top-1 agreement %", "Top-1%", 100, 2, 1),
        column("perplexity_ratio", "Perplexity ratio", "PPL x", 1, 3, -1),
        column("same", "Same text %", "Same %", 100, 1, 1),
        column("divergence", "Diverges at token", "Div at", 1, 1, 1),
        column("attention_error", "Attention error", "AttErr", 1, 4, -1),
    ]


def _comparison(table: Table, name: str, of: Callable[[Row], Comparison | None]) -> list[Column]:
    def column(title: str, key: str, digits: int, signed: bool = False) -> Column:
        values = [getattr(found, key) if (found := of(row)) else np.nan for row in table.rows]
        return Column(f"vs {name}", title, title, tuple(Cell(number(value, digits, signed)) for value in values))

    return [
        column("Δ", "delta", 2, True),
        column("95% low", "low", 2, True),
        column("95% high", "high", 2, True),
        column("p", "p", 4),
        column("p Holm", "adjusted", 4),
        column("wins", "wins", 0),
        column("ties", "ties", 0),
        column("losses", "losses", 0),
        column("detectable", "detectable", 2),
    ]


def _column(
    table: Table,
    group: str,
    name: str,
    short: str,
    value: Callable[[Row], float],
    digits: int = 2,
    signed: bool = False,
    better: int = 1,
) -> Column:
    """A column of numbers; see `marks` for `better`."""
    values = [value(row) for row in table.rows]
    ranked = [np.nan if row.method == FULL else v for v, row in zip(values, table.rows, strict=True)]
    texts = [number(v, digits, signed) for v in values]
    return Column(group, name, short, tuple(map(Cell, texts, marks(ranked, digits, better, scale=not signed))))


def marks(values: Sequence[float], digits: int = 2, better: int = 1, scale: bool = True) -> tuple[str, ...]:
    """Best and second best of a column: the one rule of the text tables and of the report.

    Parameters
    ----------
    values : sequence of float
        Of the methods that compete, at one ratio; NaN stays without a mark, and so should the full cache.
    digits : int
        Decimals that are shown: what reads alike ranks alike.
    better : int
        1 where high values are, -1 where low ones are, 0 where none is marked.
    scale : bool
        Whether high values count from 0, so that a 0 earns nothing; a difference of 0 may well be the best.

    Returns
    -------
    tuple of str
        `BEST`, `SECOND` or empty; all empty where all methods tie.
    """
    shown = [round(better * value, digits) for value in values]
    distinct = sorted({value for value in shown if not np.isnan(value)}, reverse=True)
    if not better or len(distinct) < 2:
        return ("",) * len(shown)
    top = dict(zip(distinct, (BEST, SECOND), strict=False))
    return tuple("" if value == 0 and better > 0 and scale else top.get(value, "") for value in shown)
