"""Command line of the report: runs in, tables, plots and ``report.html`` out, from the records alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from eval.report import rebuild
from eval.tables import Options
from eval.view import View, load
from selkv.errors import UserError

EPILOG = """\
RUN is the folder of a run, results/<experiment>/<model>. Runs of one model, benchmark, scoring and protocol become
one table; others stay blocks of their own. No model is loaded and nothing is computed anew.

examples:
  python scripts/report.py results/default/smollm2
  python scripts/report.py results/table1/llama31 results/ratio_sweep/llama31 --output results/llama31
exit status: 0 written, 2 bad input (one line says what is wrong)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Rebuild everything that is derived from the records of some runs; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="report", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run")
    parser.add_argument("--output", type=Path, help="folder to write to (default: RUN; with several, results/merged)")
    parser.add_argument("--baseline", help="method that the paired tests compare with, besides full (default: its own)")
    parser.add_argument("--intervals", action="store_true", help="add the paired statistics to the tables")
    options = parser.parse_args(argv)
    try:
        views = [load(run) for run in dict.fromkeys(options.runs)]
        folder = options.output or (views[0].folder if len(views) == 1 else views[0].folder.parent.parent / "merged")
        baseline = options.baseline or next(filter(None, map(configured_baseline, views)), None)
        written = rebuild(views, folder, Options(baseline=baseline, intervals=options.intervals))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path in written:
        if path.suffix != ".svg":
            print(path)
    return 0


def configured_baseline(view: View) -> str | None:
    """The baseline that the run was configured with; None where its ``config.yaml`` has none, or is not there."""
    path = view.folder / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    baseline: str | None = (config or {}).get("baseline")
    return baseline
