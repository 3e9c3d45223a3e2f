"""Folders of LongBench predictions as others publish them: one ``<dataset>.jsonl`` a task, checked line by line.

A line holds ``pred``, ``answers``, ``all_classes`` and ``length``, as LongBench's pred.py writes it.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eval.scoring import gold_fault
from eval.tasks import ROWS_E, TASKS, base_name
from selkv.errors import UserError

# Different rows of LongBench that share their answers and their length, so that they look like repeats: counted in
# complete files of 21 and 13 (LongBench-E) tasks.
LOOK_ALIKES = {"qasper": 2, "multifieldqa_en": 1, "multifieldqa_zh": 1, "trec": 1}
LOOK_ALIKES_E = {"multifieldqa_en": 1, "passage_retrieval_en": 1}


@dataclass(frozen=True)
class Predictions:
    """The predictions for one task.

    Attributes
    ----------
    path : Path
        The file.
    dataset : str
        LongBench's name, without the suffix ``_e``.
    longbench_e : bool
        Whether the rows are those of LongBench-E.
    rows : tuple of dict
        Checked rows in file order.
    """

    path: Path
    dataset: str
    longbench_e: bool
    rows: tuple[dict[str, Any], ...]

    @property
    def expected(self) -> int | None:
        """Number of rows of the whole task; None for a task that LongBench-E does not have."""
        return ROWS_E.get(self.dataset) if self.longbench_e else TASKS[self.dataset].rows

    @cached_property
    def repeats(self) -> list[int]:
        """Positions of rows with the answers and the length (without one: the prediction) of an earlier row."""
        seen: set[str] = set()
        positions = []
        for position, row in enumerate(self.rows):
            key = json.dumps([row["answers"], row.get("length", row["pred"])])
            if key in seen:
                positions.append(position)
            seen.add(key)
        return positions

    @property
    def duplicated(self) -> bool:
        """Whether more rows repeat than the task itself explains: pred.py appends, so a run that restarts repeats."""
        look_alikes = LOOK_ALIKES_E if self.longbench_e else LOOK_ALIKES
        return len(self.repeats) > look_alikes.get(self.dataset, 0)

    @property
    def first_rows(self) -> list[dict[str, Any]]:
        """The rows without the repeats."""
        repeats = set(self.repeats)
        return [row for position, row in enumerate(self.rows) if position not in repeats]


def read_folder(folder: Path, longbench_e: bool = False) -> list[Predictions]:
    """Read every prediction file of a folder.

    Parameters
    ----------
    folder : Path
        Holds ``<dataset>.jsonl`` or ``<dataset>_e.jsonl``; other files are left alone.
    longbench_e : bool
        Whether the rows are those of LongBench-E; a file named ``_e`` always is taken to hold them.

    Returns
    -------
    list of Predictions
        In LongBench's order of tasks.

    Raises
    ------
    UserError
        Missing folder, no known dataset, a task twice, or a bad line (with file and line number).
    """
    if not folder.is_dir():
        kind = "a file; give its folder" if folder.exists() else "missing"
        raise UserError(f"{folder}: a folder with one <dataset>.jsonl a task is needed, but this is {kind}")
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.jsonl")):
        dataset = base_name(path.name.partition(".")[0])
        if dataset in found:
            raise UserError(f"{path}: {dataset} is also in {found[dataset].name}; move one of the two away")
        if dataset in TASKS:
            found[dataset] = path
    if not found:
        names = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
        raise UserError(f"{folder}: no file is named after a LongBench dataset (e.g. hotpotqa.jsonl); it holds {names}")
    return [_read(found[dataset], dataset, longbench_e) for dataset in TASKS if dataset in found]


def _read(path: Path, dataset: str, longbench_e: bool) -> Predictions:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    if lines[0].startswith("version https://git-lfs"):
        raise UserError(f"{path}:1: a Git LFS pointer, not the predictions; fetch them with: git lfs pull")
    rows = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(_check(json.loads(line), dataset, longbench_e))
            except (json.JSONDecodeError, RecursionError) as error:
                cut = "; the file seems to be cut off here" if number == len(lines) else ""
                raise UserError(f"{path}:{number}: not a line of JSON ({error}){cut}") from error
            except UserError as error:
                raise UserError(f"{path}:{number}: {error}") from error
    if not rows:
        raise UserError(f"{path}:1: no predictions; remove the empty file or predict again")
    return Predictions(path, dataset, longbench_e or path.name.partition(".")[0].endswith("_e"), tuple(rows))


def _check(row: Any, dataset: str, longbench_e: bool) -> dict[str, Any]:
    """The row itself, if the scorer can score it."""
    if not isinstance(row, dict):
        raise UserError(f"a JSON object with pred, answers, all_classes, length is needed, not {type(row).__name__}")
    labelled = TASKS[dataset].metric == "classification"
    needed = ["pred", "answers"] + ["all_classes"] * labelled + ["length"] * longbench_e
    if missing := [field for field in needed if field not in row]:
        raise UserError(f"{', '.join(missing)} missing; the line has: {', '.join(row) or 'no field'}")
    if not isinstance(row["pred"], str):
        raise UserError(f"pred must be text, not {row['pred']!r}")
    for field in ["answers"] + ["all_classes"] * labelled:
        if not isinstance(row[field], list) or not all(isinstance(item, str) for item in row[field]):
            raise UserError(f"{field} must be a list of texts, not {row[field]!r}")
    if longbench_e and not isinstance(row["length"], int):
        raise UserError(f"length must be a whole number, not {row['length']!r}")
    if fault := gold_fault(dataset, row["answers"]):
        raise UserError(fault)
    return row
