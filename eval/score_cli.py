"""Command line of the scorer: a folder of published predictions in, LongBench's scores out."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.arguments import Parser
from eval.predictions import Predictions, read_folder
from eval.scoring import BUCKETS, NAMES, PERCENT, Scoring, score_buckets, score_dataset
from eval.tasks import CATEGORIES, TASKS
from selkv.errors import command

EPILOG = """\
DIR holds one <dataset>.jsonl a task, one prediction a line, as LongBench's pred.py writes it:
  {"pred": "Miller v. California", "answers": ["Miller v. California"], "all_classes": null, "length": 8616}

Every row of a file is averaged, as LongBench does, also repeated ones; those, and files with fewer or more
rows than the task has, are reported. Category and overall averages are means over the tasks that DIR holds; in
LongBench-E a task counts with the mean of its filled length buckets, and an empty bucket is NaN (--json: null).

examples:
  selkv score pred/llama2-7b-chat-4k
  selkv score pred_e/rwkv --longbench-e --code-sim levenshtein
  selkv score pred/mine --json > scores.json
exit status: 0 scored, 2 bad input (one line says which file and line)"""

Score = float | dict[str, float]


@command
def main(arguments: list[str]) -> int:
    """Score a folder and print the result; returns the exit status."""
    options = parse(arguments)
    scoring = Scoring(options.scoring, options.code_sim)
    files = read_folder(options.folder, options.longbench_e)
    summary = summarise(files, scoring, options.longbench_e)
    warnings = [warning for file in files for warning in complaints(file, scoring, options.longbench_e)]
    if options.json:
        print(json.dumps(_nan_to_null(summary), indent=2, ensure_ascii=False))
    else:
        console = Console()
        console.print(table(files, summary, options.longbench_e))
        console.print(f"{scoring}; averages are means over {len(files)} tasks", highlight=False)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser("selkv score", "Score a folder of LongBench predictions, anyone's, without a model.", EPILOG)
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder with the prediction files")
    parser.add_argument(
        "--longbench-e", action="store_true", help="the rows are LongBench-E's: scores by length 0-4k, 4-8k, 8k+"
    )
    parser.add_argument(
        "--code-sim",
        choices=PERCENT,
        default="difflib",
        help="back end of lcc and repobench-p. LongBench's own scorer silently takes levenshtein where "
        "python-Levenshtein is installed (1 to 3 points higher) and difflib elsewhere (default: difflib)",
    )
    parser.add_argument(
        "--scoring",
        choices=NAMES,
        default="official",
        help="official equals LongBench's scorer; strict mends its quirks and compares with nothing published "
        "(default: official)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: scores, categories, average, counts")
    return parser.parse_args(arguments)


def summarise(files: Sequence[Predictions], scoring: Scoring, longbench_e: bool) -> dict[str, Any]:
    """Scores of the tasks, means of the categories and of all, and rows scored, in percent.

    Returns
    -------
    dict
        ``scores`` {dataset: score or {bucket: score}}, ``categories``, ``average``, ``counts`` {dataset: rows}.
    """
    score = score_buckets if longbench_e else score_dataset
    scores: dict[str, Score] = {file.dataset: score(file.dataset, file.rows, scoring) for file in files}
    means = {dataset: _mean_bucket(value) for dataset, value in scores.items()}
    by_category = {
        category: [mean for dataset, mean in means.items() if TASKS[dataset].category == category]
        for category in CATEGORIES
    }
    return {
        "scores": scores,
        "categories": {category: _mean(values) for category, values in by_category.items() if values},
        "average": _mean(list(means.values())),
        "counts": {file.dataset: len(file.rows) for file in files},
    }


def complaints(file: Predictions, scoring: Scoring, longbench_e: bool) -> list[str]:
    """What a reader of a file's score should know: rows missing or too many, rows repeated."""
    found = []
    if file.expected is None:
        found.append(f"{file.path}: {file.dataset} is not part of LongBench-E")
    elif len(file.rows) != file.expected:
        found.append(f"{file.path}: {len(file.rows)} rows, {file.expected} expected")
    if file.duplicated:
        score = score_buckets if longbench_e else score_dataset
        found.append(
            f"{file.path}: {len(file.repeats)} rows repeat the answers and the length of an earlier one (a restarted "
            f"run appends); the score counts them, as LongBench's does; without them it is "
            f"{score(file.dataset, file.first_rows, scoring)}"
        )
    return found


def table(files: Sequence[Predictions], summary: dict[str, Any], longbench_e: bool) -> Table:
    """Tasks by category, with the rows scored / expected in red where they differ or repeat."""
    columns = [*BUCKETS, "mean"] if longbench_e else ["score"]
    grid = Table("task", *columns, "rows")
    for column in grid.columns[1:]:
        column.justify = "right"
    blank = [""] * (len(columns) - 1)
    for category, mean in summary["categories"].items():
        for file in files:
            if TASKS[file.dataset].category == category:
                grid.add_row(file.dataset, *_cells(summary["scores"][file.dataset]), _rows_cell(file))
        grid.add_row(f"[bold]{category}", *blank, f"[bold]{mean:.2f}", "", end_section=True)
    grid.add_row("[bold]average", *blank, f"[bold]{summary['average']:.2f}", f"{sum(summary['counts'].values())}")
    return grid


def _cells(score: Score) -> list[str]:
    if isinstance(score, dict):
        return [f"{value:.2f}" for value in (*score.values(), _mean_bucket(score))]
    return [f"{score:.2f}"]


def _rows_cell(file: Predictions) -> str:
    repeats = f", {len(file.repeats)} repeated" if file.duplicated else ""
    text = f"{len(file.rows)}/{file.expected or '?'}{repeats}"
    return f"[red]{text}" if repeats or len(file.rows) != file.expected else text


def _mean_bucket(score: Score) -> float:
    if isinstance(score, dict):
        return _mean([value for value in score.values() if not math.isnan(value)])
    return score


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2)


def _nan_to_null(summary: dict[str, Any]) -> dict[str, Any]:
    def clean(score: Score) -> float | dict[str, float | None]:
        if isinstance(score, dict):
            return {bucket: None if math.isnan(value) else value for bucket, value in score.items()}
        return score

    return {**summary, "scores": {dataset: clean(score) for dataset, score in summary["scores"].items()}}
