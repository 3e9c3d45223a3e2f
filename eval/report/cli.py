"""Command line of the report: runs in, tables, plots and ``report.html`` out, from the records alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.report import rebuild
from eval.view import load
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
    parser.add_argument("--baseline", help="method that the paired tests compare with, besides full")
    options = parser.parse_args(argv)
    try:
        views = [load(run) for run in dict.fromkeys(options.runs)]
        folder = options.output or (views[0].folder if len(views) == 1 else views[0].folder.parent.parent / "merged")
        written = rebuild(views, folder, options.baseline)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path in written:
        if path.suffix != ".svg":
            print(path)
    return 0
