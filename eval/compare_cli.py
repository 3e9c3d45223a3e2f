"""Command line of the comparison: runs beside published numbers."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from eval.arguments import Parser
from eval.compare import INSIDE, NOT, OTHER_MODEL, OUTSIDE, Verdict, compare, read_references
from eval.grid import number
from eval.view import load
from selkv.errors import command

EPILOG = """\
inside: the published number lies in the run's 95 % bootstrap interval (of the score, or of the paired difference of
two methods); not comparable: other model, data, samples, protocol or scoring, with the reason.

examples:
  selkv compare results/table1/llama31
  selkv compare results/table1/* --reference my_numbers.csv
exit status: 0 compared, 2 bad input (one line says what is wrong)"""

STYLES = {INSIDE: "green", OUTSIDE: "red"}


@command
def main(arguments: list[str]) -> int:
    """Compare and print; returns the exit status."""
    options = parse(arguments)
    verdicts = compare([load(run) for run in options.runs], read_references(options.reference))
    console = Console()
    models = {verdict.reference.model for verdict in verdicts if verdict.reason != OTHER_MODEL}
    told = [verdict for verdict in verdicts if verdict.reference.model in models]
    console.print(table(told) if told else "No published numbers of these models.")
    counts = Counter(verdict.verdict for verdict in verdicts)
    console.print(", ".join(f"{counts[kind]} {kind}" for kind in (INSIDE, OUTSIDE, NOT)), highlight=False)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser("selkv compare", "Put runs beside published numbers.", EPILOG)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder like results/<experiment>/<model>")
    parser.add_argument(
        "--reference",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="CSV files with published numbers (default: all of results/reference)",
    )
    return parser.parse_args(arguments)


def table(verdicts: Sequence[Verdict]) -> RenderableType:
    """The comparable numbers as a table for the console, then those that are not with the reason, then the sources."""
    sources = list(dict.fromkeys(_source(verdict) for verdict in verdicts))
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("Score")
    for name in ("Published", "Run", "95 % interval"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("Verdict", no_wrap=True)
    rest = []
    for verdict in verdicts:
        published = f"{verdict.reference.value} [{sources.index(_source(verdict)) + 1}]"
        if verdict.verdict == NOT:
            rest.append(Text(f"{_name(verdict)}, {published}: {NOT}: {verdict.reason}"))
        else:
            interval = f"[{number(verdict.low)}, {number(verdict.high)}]"
            texts = map(Text, (_name(verdict), published, number(verdict.value), interval))
            shown.add_row(*texts, Text(verdict.verdict, STYLES[verdict.verdict]))
    notes = [Text(f"[{n}] {source}", "dim") for n, source in enumerate(sources, 1)]
    return Group(*([shown] if shown.rows else []), *rest, *notes)


def _name(verdict: Verdict) -> str:
    reference = verdict.reference
    method = f"{reference.method} - {reference.minus}" if reference.minus else reference.method
    return f"{reference.model} {method} {reference.ratio} {reference.task or reference.quantity}"


def _source(verdict: Verdict) -> str:
    reference = verdict.reference
    return reference.source if reference.status == "published" else f"{reference.status}: {reference.source}"
