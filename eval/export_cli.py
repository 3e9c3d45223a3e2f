"""Command line of the export: a run in LongBench's own layout, for its official scorer or anyone's."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.records import Record
from eval.tasks import base_name
from eval.view import View, load
from selkv.errors import UserError

EPILOG = """\
Writes OUT/pred/<model>-<method>-<ratio>/<dataset>.jsonl with the fields of LongBench's pred.py: pred, answers,
all_classes, length (LongBench-E under pred_e/, file names without _e). Cells that failed or are missing are not
written; each is told.

examples:
  python scripts/export.py results/default/smollm2
  python scripts/export.py results/table1/* --out longbench && python scripts/score.py longbench/pred/llama31-selkv-0.25
exit status: 0 exported, 1 with holes, 2 bad input"""


def main(argv: Sequence[str] | None = None) -> int:
    """Export runs; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="export", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder like results/<experiment>/<model>")
    parser.add_argument("--out", type=Path, default=Path("."), help="where pred/ is made (default: here)")
    options = parser.parse_args(argv)
    holes = 0
    try:
        for run in options.runs:
            view = load(run)
            for path, rows, missing in exported(view, options.out):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(rows), encoding="utf-8", newline="\n")
                print(f"{path}: {len(rows)} rows" + (f", {missing} missing" if missing else ""))
                holes += missing
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename} cannot be written ({error.strerror}); give --out FOLDER", file=sys.stderr)
        return 2
    return 1 if holes else 0


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
        for dataset, rows in view.manifest["cells"].items():
            records = [view.records.get(row[i]) for row in rows]
            good = [record for record in records if record is not None and record.error is None]
            file = f"{base_name(dataset) if by_length else dataset}.jsonl"
            yield (
                out / ("pred_e" if by_length else "pred") / name / file,
                [line(r) for r in good],
                len(rows) - len(good),
            )


def line(record: Record) -> str:
    """One prediction as LongBench's pred.py writes it."""
    fields = {
        "pred": record.prediction,
        "answers": record.answers,
        "all_classes": record.all_classes,
        "length": record.length,
    }
    return json.dumps(fields, ensure_ascii=False) + "\n"
