"""Runs as one: arms side by side on the samples they share; runs that cannot be compared stay apart."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from eval.aggregate import FULL
from eval.notes import mixed
from eval.view import View

SAME = ("model", "data", "scoring", "protocol")  # what runs must have in common for their rows to stand in one table
MISSING = ""  # key of a cell that no run asks for


def merge(views: Sequence[View]) -> list[View]:
    """Join runs of one model, benchmark, scoring and protocol; the others become views of their own.

    Samples are matched by the full cache's key, which is the hash of everything but the method. Arms that two runs
    share appear once; a cell that no run has is missing.

    Parameters
    ----------
    views : sequence of View
        Their order is the order of arms and tasks.
    """
    groups: dict[str, list[View]] = {}
    for view in views:
        groups.setdefault(_canonical([view.manifest.get(name) for name in SAME]), []).append(view)
    return [group[0] if len(group) == 1 else _joined(group) for group in groups.values()]


def _joined(views: Sequence[View]) -> View:
    manifests = [view.manifest for view in views]
    arms = {_identity(arm): arm for manifest in manifests for arm in manifest["arms"]}
    order = sorted(arms, key=lambda name: arms[name]["method"] != FULL)
    tasks: dict[str, dict[str, int]] = {}
    cells: dict[str, list[list[str]]] = {}
    for name in dict.fromkeys(name for manifest in manifests for name in manifest["tasks"]):
        having = [manifest for manifest in manifests if name in manifest["tasks"]]
        cells[name] = _rows(having, name, order)
        tasks[name] = {"rows": having[0]["tasks"][name]["rows"], "selected": len(cells[name])}
    merged = manifests[0] | {
        "experiment": " + ".join(dict.fromkeys(manifest["experiment"] for manifest in manifests)),
        "arms": [arms[name] for name in order],
        "tasks": tasks,
        "cells": cells,
        "notes": list(dict.fromkeys([*mixed(views), *(note for m in manifests for note in m["notes"])])),
    }
    return View(views[0].folder, merged, {key: record for view in views for key, record in view.records.items()})


def _rows(manifests: Iterable[dict[str, Any]], dataset: str, order: Sequence[str]) -> list[list[str]]:
    """Keys of a dataset by sample and arm, over all runs."""
    samples: dict[str, dict[str, str]] = {}
    for manifest in manifests:
        names = [_identity(arm) for arm in manifest["arms"]]
        full = next((i for i, arm in enumerate(manifest["arms"]) if arm["method"] == FULL), 0)
        for keys in manifest["cells"][dataset]:
            samples.setdefault(keys[full], {}).update(zip(names, keys, strict=True))
    return [[keys.get(name, MISSING) for name in order] for keys in samples.values()]


def _identity(arm: dict[str, Any]) -> str:
    return _canonical([arm[name] for name in ("label", "method", "params", "version", "ratio")])


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
