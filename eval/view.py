"""An experiment folder as a view on cells: ``manifest.json`` names the arms and the keys, the cells hold the rest."""

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from eval.records import Record, cells_file, latest, read
from eval.typecheck import misfit
from selkv.errors import UserError

MANIFEST = "manifest.json"
ANEW = "run the same command again: it writes the file anew and keeps every finished cell"


class ArmFacts(TypedDict):
    """A row of the table; `ratio` as a user writes it."""

    label: str
    method: str
    params: dict[str, Any]
    version: int
    ratio: str
    exact: bool
    note: NotRequired[str | None]


class TaskFacts(TypedDict):
    """Rows of the whole file, and samples asked for."""

    rows: int
    selected: int


class ScoringFacts(TypedDict):
    """What `eval.scoring.Scoring` takes."""

    name: str
    code_sim: str


class Manifest(TypedDict):
    """What ``manifest.json`` must hold; more facts for reproduction may stand beside.

    `protocol` holds what tables name; `arms` are in table order, full first, `tasks` in table order, too; `cells` are
    {dataset: [[key of each arm] of each sample]}.
    """

    experiment: str
    model: str
    data: str
    scoring: ScoringFacts
    protocol: dict[str, Any]
    notes: list[str]
    arms: list[ArmFacts]
    tasks: dict[str, TaskFacts]
    cells: dict[str, list[list[str]]]
    versions: NotRequired[dict[str, Any]]
    device: NotRequired[str | None]


@dataclass(frozen=True)
class View:
    """A run: its manifest and the records of its cells.

    Attributes
    ----------
    folder : Path
    manifest : dict
    records : dict of str to Record
        By key; a key of the manifest that is not here has no result yet.
    """

    folder: Path
    manifest: dict[str, Any]
    records: dict[str, Record]

    def cell(self, dataset: str, sample: int, arm: int) -> Record | None:
        """Record of a sample (in the run's order) and an arm, or None where it is missing."""
        return self.records.get(self.manifest["cells"][dataset][sample][arm])


def load(folder: Path, results: Path | None = None) -> View:
    """Read an experiment folder and the cells that it names.

    Parameters
    ----------
    folder : Path
        ``results/<experiment>/<model>``.
    results : Path, optional
        Folder that holds ``cells``; by default two levels above `folder`.

    Raises
    ------
    UserError
        When there is no manifest, it is damaged, or the cells are not where it stands.
    """
    manifest = read_manifest(folder)
    results = results or folder.resolve().parent.parent
    place = cells_file(results, manifest["model"], manifest["data"], "").parent
    if not place.is_dir():
        raise UserError(
            f"{folder} is a run without its cells: {place} is missing; give the folder where it was written"
        )
    records: dict[str, Record] = {}
    for dataset, rows in manifest["cells"].items():
        wanted = {key for row in rows for key in row}
        stored = latest(read(cells_file(results, manifest["model"], manifest["data"], dataset)))
        records.update((key, record) for key, record in stored.items() if key in wanted)
    return View(folder, manifest, records)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run, checked.

    Raises
    ------
    UserError
        Naming the file, what is wrong with it, and the fix.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"no run in {folder}: {MANIFEST} is missing; give a folder like results/<experiment>/<model>"
        ) from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror}); give a folder with a readable run") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path} is damaged (not JSON: {problem}); {ANEW}") from None
    if fault := misfit(manifest, Manifest, "manifest") or _contradiction(manifest):
        raise UserError(f"{path} is damaged ({fault.removeprefix('manifest.')}); {ANEW}")
    return dict(manifest)


def _contradiction(manifest: Manifest) -> str:
    """What the types do not say: every sample has a cell of each arm, every task its samples, ratios are numbers."""
    width = len(manifest["arms"])
    if not width or not manifest["tasks"]:
        return "arms and tasks must not be empty"
    if set(manifest["tasks"]) != set(manifest["cells"]):
        return "tasks and cells must name the same datasets"
    if uneven := [name for name, rows in manifest["cells"].items() if any(len(row) != width for row in rows)]:
        return f"cells.{uneven[0]} must have {width} keys a sample, one an arm"
    if empty := [name for name, rows in manifest["cells"].items() if not rows]:
        return f"cells.{empty[0]} must have a sample"
    return next(
        (f"the ratio {arm['ratio']!r} is no number" for arm in manifest["arms"] if not _number(arm["ratio"])), ""
    )


def _number(text: str) -> bool:
    try:
        return Fraction(text) > 0
    except (ValueError, ZeroDivisionError):
        return False
