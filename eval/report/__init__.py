"""The report of one or more runs: ``report.html``, one file that works offline."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eval.outputs import writing
from eval.plots import write_plots
from eval.plots.measures import Numbers, numbers
from eval.report.merge import merge
from eval.report.page import page
from eval.report.payload import block
from eval.tables import ELSEWHERE, Options, write_tables
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
    path, text = folder / FILE, page([block(run) for run in runs], title)
    with writing(folder, ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return path


def rebuild(views: Sequence[View], folder: Path, options: Options | None = None) -> list[Path]:
    """Write tables, plots and report of some runs from their records.

    Parameters
    ----------
    views : sequence of View
        Runs that can be compared are merged first (`eval.report.merge`).
    folder : Path
        Tables and report of all; plots too, in a folder a run where there is more than one.
    options : Options, optional
        What the tables show; runs without the baseline are compared with the full cache only.

    Returns
    -------
    list of Path
        The files written.
    """
    options = options or Options()
    merged = merge(views)
    having = [view for view in merged if _has(view, options.baseline)] or merged  # nowhere: let it be refused by name
    runs = [numbers(view, options.baseline if view in having else None) for view in merged]
    common = options if len(having) == len(merged) else replace(options, baseline=None)
    written = [write_report(runs, folder)]
    written += write_tables(merged[0], folder, common, merged[1:])
    for run in runs:
        manifest = run.view.manifest
        name = (
            Path("plots")
            if len(runs) == 1
            else Path("plots") / f"{manifest['model']}-{manifest['data']}".replace("/", "_")
        )
        with writing(folder, ELSEWHERE):
            written += write_plots(run, folder / name)
    with writing(folder, ELSEWHERE):
        for old in {*folder.glob("plots/**/*.png"), *folder.glob("plots/**/*.svg")} - set(written):
            old.unlink()  # of a run that was here before, with other methods or ratios
    return written


def _has(view: View, baseline: str | None) -> bool:
    return any(baseline in (arm["label"], arm["method"]) for arm in view.manifest["arms"])
