"""Command line of the report: runs in, tables, plots and ``report.html`` out, from the records alone."""

from pathlib import Path

import yaml
from typing_extensions import TypedDict

from eval.arguments import Parser
from eval.report import rebuild
from eval.tables import Options
from eval.typecheck import misfit
from eval.view import ANEW, View, load
from selkv.errors import UserError, command

DESCRIPTION = """\
Write the tables, the plots and report.html of one or more runs again, from their records: no model is loaded and
nothing is computed anew. Of several runs, those of one model, benchmark, scoring and protocol become one table; others
stay blocks of their own on the same page."""

EPILOG = """\
Writes report.html (one file, works offline), table.md, table.csv, table.tex, scores.csv and plots/.

examples:
  selkv report results/default/smollm2
  selkv report results/table1/llama31 --baseline snapkv --intervals
  selkv report results/table1/llama31 results/ratio_sweep/llama31 --output results/llama31
exit status: 0 written, 2 bad input (one line says what is wrong)"""


class Config(TypedDict, total=False):
    """What the report takes from ``config.yaml``."""

    baseline: str | None


@command
def main(arguments: list[str]) -> int:
    """Rebuild everything that is derived from the records of some runs; returns the exit status."""
    parser = Parser("selkv report", DESCRIPTION, EPILOG)
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder like results/<experiment>/<model>")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where to write (default: RUN; with several, results/merged)"
    )
    parser.add_argument(
        "--baseline", metavar="METHOD", help="what the paired tests compare with, besides full (default: the run's own)"
    )
    parser.add_argument("--intervals", action="store_true", help="add the paired statistics to the tables")
    options = parser.parse_args(arguments)
    views = [load(run) for run in dict.fromkeys(options.runs)]
    home = views[0].folder.resolve().parent.parent
    folder = options.output or (views[0].folder if len(views) == 1 else home / "merged")
    baseline = options.baseline or next(filter(None, map(configured_baseline, views)), None)
    written = rebuild(views, folder, Options(baseline=baseline, intervals=options.intervals))
    for path in written:
        if path.suffix != ".svg":
            print(path)
    return 0


def configured_baseline(view: View) -> str | None:
    """The baseline that the run was configured with; None where its ``config.yaml`` has none, or is not there.

    Raises
    ------
    UserError
        Where that file is damaged.
    """
    path = view.folder / "config.yaml"
    try:
        config = yaml.safe_load(path.read_bytes()) or {}
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror}); give --baseline METHOD, or {ANEW}") from None
    except yaml.YAMLError:
        raise UserError(f"{path} is damaged (not YAML); {ANEW}") from None
    if fault := misfit(config, Config, "config"):
        raise UserError(f"{path} is damaged ({fault.removeprefix('config.')}); {ANEW}")
    baseline: str | None = config.get("baseline")
    return baseline
