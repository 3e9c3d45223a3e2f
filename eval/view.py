"""An experiment folder as a view on cells: ``manifest.json`` names the arms and the keys, the cells hold the rest.

Layout of the manifest: ``experiment``, ``model``, ``data``, ``scoring`` (name and code_sim), ``protocol`` (what tables
name), ``notes``; ``arms``: a list of {label, method, params, version, ratio, exact, note} in table order, full
first; ``tasks``: {dataset: {rows: expected rows of the whole file, selected: samples asked for}} in table order;
``cells``: {dataset: [[key of each arm] of each sample]} (sample order, then arm order); ``versions``, ``device``,
``sources``, ``prompts``: facts for reproduction.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.records import Record, cells_file, latest, read
from selkv.errors import UserError

MANIFEST = "manifest.json"


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
        When there is no manifest.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise UserError(f"no run in {folder}: {MANIFEST} is missing; give a folder like results/<experiment>/<model>")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    results = results or folder.parent.parent
    records: dict[str, Record] = {}
    for dataset, rows in manifest["cells"].items():
        wanted = {key for row in rows for key in row}
        stored = latest(read(cells_file(results, manifest["model"], manifest["data"], dataset)))
        records.update((key, record) for key, record in stored.items() if key in wanted)
    return View(folder, manifest, records)
