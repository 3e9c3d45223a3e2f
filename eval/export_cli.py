"""Command line of the export: a run in LongBench's own layout, for its official scorer or anyone's."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.arguments import Parser
from eval.outputs import writing
from eval.records import Record
from eval.tasks import base_name
from eval.view import View, load
from selkv.errors import UserError, command

DESCRIPTION = """\
Write the predictions of runs in the layout of LongBench's pred.py, so that its official scorer, or anyone's, reads
them: a folder for each method and ratio, a file for each task, a line for each sample."""

EPILOG = """\
Writes FOLDER/pred/<model>-<method>-<ratio>/<dataset>.jsonl with the fields of LongBench's pred.py: pred, answers,
all_classes, length (LongBench-E under pred_e/, file names without _e). Cells that failed or are missing are not
written; each is told.

examples:
  selkv export results/default/smollm2
  selkv export results/table1/* --out longbench && selkv score longbench/pred/llama31-selkv-0.25
exit status: 0 exported, 1 with holes, 2 bad input (one line says what is wrong)"""

OTHER = "give --out FOLDER"


@command
def main(arguments: list[str]) -> int:
    """Export runs; returns the exit status."""
    parser = Parser("selkv export", DESCRIPTION, EPILOG)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder like results/<experiment>/<model>")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path("."), help="where pred/ is made (default: here)"
    )
    options = parser.parse_args(arguments)
    files = gathered([load(run) for run in dict.fromkeys(options.runs)], options.out)
    for path, (rows, missing) in files.items():
        if rows:
            with writing(path, OTHER):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(rows), encoding="utf-8", newline="\n")
        told = f"{len(rows)} rows" if rows else "not written"
        print(f"{path}: {told}" + (f", {missing} missing" if missing else ""))
    return 1 if any(missing for _, missing in files.values()) else 0


def gathered(views: Sequence[View], out: Path) -> dict[Path, tuple[list[str], int]]:
    """Lines of each file, and the number of cells that are missing in it.

    Raises
    ------
    UserError
        Where two runs, or two rows of a table, would write different lines to one file.
    """
    files: dict[Path, tuple[list[str], int]] = {}
    for view in views:
        for path, rows, missing in exported(view, out):
            if files.setdefault(path, (rows, missing)) != (rows, missing):
                raise UserError(
                    f"{path} would get other rows from {view.folder}, too; export it alone, to another --out"
                )
    return files


def exported(view: View, out: Path) -> Iterator[tuple[Path, list[str], int]]:
    """Files of a run: path, lines, and the number of cells that are missing.

    Parameters
    ----------
    view : View
    out : Path
        Folder that gets ``pred`` or ``pred_e``.
    """
    by_length = view.manifest["data"] == "longbench_e"
    for i, arm in enumerate(view.manifest["arms"]):
        name = re.sub(r"[^\w.=+-]+", "_", f"{view.manifest['model']}-{arm['label']}-{arm['ratio']}")
        folder = out / ("pred_e" if by_length else "pred") / name
        for dataset, rows in view.manifest["cells"].items():
            records = [view.records.get(row[i]) for row in rows]
            good = [line(record) for record in records if record is not None and record.error is None]
            yield folder / f"{base_name(dataset) if by_length else dataset}.jsonl", good, len(rows) - len(good)


def line(record: Record) -> str:
    """One prediction as LongBench's pred.py writes it."""
    fields = {
        "pred": record.prediction,
        "answers": record.answers,
        "all_classes": record.all_classes,
        "length": record.length,
    }
    return json.dumps(fields, ensure_ascii=False) + "\n"
