"""The report of one or more runs: ``report.html``, one file that works offline."""

from collections.abc import Sequence
from pathlib import Path

from eval.plots.measures import Numbers, numbers
from eval.report.page import page
from eval.report.payload import block
from eval.view import View

FILE = "report.html"


def write_report(runs: Sequence[Numbers], folder: Path) -> Path:
    """Write ``report.html``.

    Parameters
    ----------
    runs : sequence of Numbers
        Scored runs (`eval.plots.measures.numbers`); the page lets the reader choose among them.
    folder : Path
        Created if need be.

    Returns
    -------
    Path
        The file.
    """
    title = "SelKV · " + " + ".join(dict.fromkeys(run.view.manifest["experiment"] for run in runs))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.write_text(page([block(run) for run in runs], title), encoding="utf-8", newline="\n")
    return path


def rebuild(views: Sequence[View], folder: Path, baseline: str | None = None) -> list[Path]:
    """Write tables, plots and report of some runs from their records.

    Parameters
    ----------
    views : sequence of View
        Runs that can be compared are merged first (`eval.report.merge`).
    folder : Path
        Tables and report of all; plots too, in a folder a run where there is more than one.
    baseline : str, optional
        Label or method that the paired tests compare with, besides the full cache.

    Returns
    -------
    list of Path
        The files written.
    """
    from eval.plots import write_plots
    from eval.report.merge import merge
    from eval.tables import Options, write_tables

    merged = merge(views)
    runs = [numbers(view, baseline) for view in merged]
    written = [write_report(runs, folder)]
    written += write_tables(merged[0], folder, Options(baseline=baseline, intervals=True), merged[1:])
    for run in runs:
        manifest = run.view.manifest
        name = (
            Path("plots")
            if len(runs) == 1
            else Path("plots") / f"{manifest['model']}-{manifest['data']}".replace("/", "_")
        )
        written += write_plots(run, folder / name, positions=run.view.folder / "positions.npz")
    return written
