"""The tables of a run: on the console, and as Markdown, CSV and LaTeX files (same records, same bytes)."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from eval.aggregate import Table, tables
from eval.grid import Grid, fidelity_grid, scores_grid, statistics_grid
from eval.notes import mixed, notes
from eval.outputs import writing
from eval.render import Sheet, latex, markdown
from eval.scores import frame
from eval.view import View

ELSEWHERE = "no finished cell is lost; free that place, or write elsewhere: results=FOLDER (report: --output FOLDER)"
INTEGERS = ["n", "generated", "kept", "total", "length", "divergence"]


@dataclass(frozen=True)
class Options:
    """What tables show.

    Attributes
    ----------
    baseline : str or None
        Label or method that the paired tests compare with, besides the full cache.
    intervals : bool
        Whether to add the paired statistics.
    categories : bool
        Whether to show the average over categories beside the one over tasks.
    fidelity : bool
        Whether to show the fidelity, where it was measured.
    """

    baseline: str | None = None
    intervals: bool = False
    categories: bool = True
    fidelity: bool = True


def console(view: View, options: Options | None = None) -> RenderableType:
    """The tables of a run for a rich console."""
    options = options or Options()
    blocks = tables(view, options.baseline, options.intervals)
    lines = [Text(note, "dim") for note in notes(view, blocks, options.intervals)]
    return Group(*(Sheet(grid) for block in blocks for grid in _grids(block, options)), *lines)


def write_tables(view: View, folder: Path, options: Options | None = None, others: Sequence[View] = ()) -> list[Path]:
    """Write ``scores.csv`` (a line a cell), ``table.md``, ``table.csv`` and ``table.tex``.

    Parameters
    ----------
    view : View
        The run.
    folder : Path
        Where to write; created if need be.
    options : Options, optional
        What to show.
    others : sequence of View
        Further runs, e.g. of other models: a block each. The order of the runs does not matter.

    Returns
    -------
    list of Path
        The files written.
    """
    options = options or Options()
    views = sorted([view, *others], key=lambda v: [v.manifest[name] for name in ("model", "data", "experiment")])
    blocks = [tables(v, options.baseline, options.intervals) for v in views]
    texts = {
        "scores.csv": scores_csv(views),
        "table.md": _markdown(views, blocks, options),
        "table.csv": table_csv(blocks, options),
        "table.tex": _latex(views, blocks, options),
    }
    with writing(folder, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in texts]


def _grids(block: Table, options: Options, apart: bool = False) -> list[Grid]:
    """The grids of a block; with `apart`, fidelity has its own, as a printed page has no room for all columns."""
    grids = [
        scores_grid(block, options.categories, options.fidelity and not apart),
        fidelity_grid(block) if options.fidelity and apart else None,
        statistics_grid(block) if options.intervals else None,
    ]
    return [grid for grid in grids if grid is not None]


def _markdown(views: Sequence[View], blocks: Sequence[list[Table]], options: Options) -> str:
    parts = [f"{line}\n" for line in mixed(views)]
    for view, own in zip(views, blocks, strict=True):
        parts += [markdown(grid) for block in own for grid in _grids(block, options)]
        parts.append("".join(f"- {note}\n" for note in notes(view, own, options.intervals)))
    return "\n".join(parts)


def _latex(views: Sequence[View], blocks: Sequence[list[Table]], options: Options) -> str:
    parts = ["% needs \\usepackage{booktabs,graphicx}\n"]
    for view, own in zip(views, blocks, strict=True):
        grids = [grid for block in own for grid in _grids(block, options, apart=True)]
        below = [*notes(view, own, options.intervals), *mixed(views)]
        parts += [latex(grid, below if grid is grids[-1] else ()) for grid in grids]
    return "\n".join(parts)


def scores_csv(views: Sequence[View]) -> str:
    """All cells with their scores, a line each, in the manifest's order."""
    cells = pd.concat([frame(view) for view in views]).drop(columns=["share", "arm"])
    cells = cells.astype(dict.fromkeys(INTEGERS, "Float64")).astype(dict.fromkeys(INTEGERS, "Int64"))
    return cells.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def table_csv(blocks: Sequence[list[Table]], options: Options) -> str:
    """All rows of all blocks, numbers only, with the counts of samples."""
    rows = [line for own in blocks for block in own for line in _csv_rows(block, options)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _csv_rows(block: Table, options: Options) -> list[dict[str, str]]:
    scores = scores_grid(block, options.categories, options.fidelity)
    extra = statistics_grid(block) if options.intervals else None
    lines = []
    for number, row in enumerate(block.rows):
        line = {"model": block.model, "data": block.data, "ratio": block.ratio, "length": block.bucket}
        line |= {"label": row.label, "method": row.method, "exact budget": "yes" if row.exact else "no"}
        line |= {column.name: column.cells[number].text for column in scores.columns}
        counts = {"scored": row.scored, "failed": row.failed, "selected": block.selected, "expected": block.expected}
        line |= {name: str(sum(values)) for name, values in counts.items()}
        if extra and row.label in extra.labels:
            place = extra.labels.index(row.label)
            line |= {f"{column.group}: {column.name}": column.cells[place].text for column in extra.columns}
        lines.append(line)
    return lines
