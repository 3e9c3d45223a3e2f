"""A simulated run folder: manifest and cells as a real run leaves them, with an effect that is known."""

import hashlib
import json
from collections.abc import Collection, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from eval.records import Record, cell_key, cells_file, line_of
from eval.tasks import TASKS, base_name
from eval.view import MANIFEST, View, load

Arm = tuple[str, str, float]  # label, ratio, effect on the share of a prediction that is right
Where = tuple[str, str, int]  # label, dataset, sample: a cell that failed or is missing

WORDS = (
    *("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "islet", "joint", "kelp", "larch"),
    *("mound", "north", "ocean", "pearl", "quartz", "ridge", "slate", "thorn", "umbra", "valley", "willow", "zephyr"),
)
CLASSES = ["animal", "building", "currency", "disease", "entity", "festival"]
LAYERS, HEADS, MERGING = 4, 2, ("selkv", "lookm", "d2o", "kvmerger", "keepkv", "cam", "ems", "weightedkv")


def simulate(
    folder: Path,
    tasks: Sequence[str],
    samples: int,
    arms: Sequence[Arm],
    seed: int = 0,
    data: str = "mini",
    fidelity: bool = True,
    failed: Collection[Where] = (),
    missing: Collection[Where] = (),
    manifest: dict[str, Any] | None = None,
) -> View:
    """Write a run and read it back.

    Parameters
    ----------
    folder : Path
        ``results/<experiment>/<model>``; the cells go to ``results/cells``.
    tasks : sequence of str
        Datasets, with or without ``_e``.
    samples : int
        Per task.
    arms : sequence of (label, ratio, effect)
        ``("full", "1", 0.0)`` first. Effect -0.1: a tenth less of each prediction is right. A label like
        ``selkv alpha=0.5`` belongs to method ``selkv``.
    seed : int
        Of every draw.
    data : str
        Name of the benchmark.
    fidelity : bool
        Whether cells carry it.
    failed, missing : collection of (label, dataset, sample)
        Cells that hold an error, and cells that were never computed.
    manifest : dict, optional
        Entries of the manifest to replace.
    """
    rows = {name: [_sample(name, i, seed) for i in range(samples)] for name in tasks}
    cells: dict[str, list[list[str]]] = {}
    for name in tasks:
        path = cells_file(folder.parent.parent, folder.name, data, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        cells[name] = []
        with path.open("ab") as file:
            for sample in rows[name]:
                records = [_record(sample, arm, folder.name, data, seed, fidelity) for arm in arms]
                cells[name].append([record.key for record in records])
                for record in records:
                    where = (record.label, name, record.index)
                    if where in failed:
                        record = _failed(record)
                    if where not in missing:
                        file.write(line_of(record))
    folder.mkdir(parents=True, exist_ok=True)
    content = _manifest(folder, data, arms, rows, cells) | (manifest or {})
    (folder / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return load(folder)


def _manifest(folder: Path, data: str, arms: Sequence[Arm], rows: dict[str, list], cells: dict) -> dict[str, Any]:
    return {
        "experiment": folder.parent.name,
        "model": folder.name,
        "data": data,
        "scoring": {"name": "official", "code_sim": "difflib"},
        "protocol": {"name": "default", "truncation": "ids", "compress": "prompt", "max_prompt_tokens": None},
        "notes": [],
        "arms": [
            {"label": label, "method": _method(label), "params": _params(label), "version": 1, "ratio": ratio}
            | {"exact": _method(label) != "kvpress", "note": ""}
            for label, ratio, _ in arms
        ],
        "tasks": {name: {"rows": TASKS[base_name(name)].rows, "selected": len(rows[name])} for name in rows},
        "cells": cells,
        "versions": {"selkv": "0.1.0", "torch": "2.13.0"},
        "device": "cpu",
        "sources": {name: hashlib.sha256(name.encode()).hexdigest() for name in rows},
        "prompts": {name: hashlib.sha256(name.encode()).hexdigest() for name in rows},
    }


def _method(label: str) -> str:
    return label.split()[0]


def _params(label: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in label.split()[1:])


def _sample(dataset: str, index: int, seed: int) -> dict[str, Any]:
    draw = _draw(seed, dataset, index)
    metric = TASKS[base_name(dataset)].metric
    number = str(draw.integers(10, 99))
    gold = {
        "classification": CLASSES[draw.integers(len(CLASSES))],
        "count": number,
        "retrieval": f"Paragraph {number}",
        "retrieval_zh": f"段落{number}",
        "code_sim": f"{WORDS[index % 20]} = {'_'.join(draw.choice(WORDS, 5))}(value, {number})",
    }.get(metric, " ".join(draw.permutation(WORDS)[:10]))
    return {
        "dataset": dataset,
        "index": index,
        "question": f"Which words belong to case {index} of {dataset}?",
        "answers": [gold],
        "all_classes": CLASSES if metric == "classification" else None,
        "length": int(draw.integers(1000, 12000)),
        "n": int(draw.integers(900, 4000)),
        "ease": float(draw.beta(2, 2)),
    }


def _record(sample: dict[str, Any], arm: Arm, model: str, data: str, seed: int, fidelity: bool) -> Record:
    label, ratio, effect = arm
    dataset, index, n = sample["dataset"], sample["index"], sample["n"]
    draw = _draw(seed, dataset, index, label, ratio)
    prediction = _prediction(sample, float(np.clip(sample["ease"] + effect + draw.normal(0, 0.1), 0, 1)), draw)
    share = Fraction(ratio)
    kept = [HEADS * m for m in _budgets(max(1, int(share * n)), n, _method(label))]
    arm_of: dict[str, Any] = {"method": _method(label), "label": label, "params": _params(label), "version": 1}
    return Record(
        key=cell_key({"model": model, "data": data, "dataset": dataset, "index": index, "arm": [label, ratio]}),
        **{"model": model, "data": data, "dataset": dataset, "id": f"{dataset}-{index}", "index": index},
        **{name: sample[name] for name in ("question", "answers", "all_classes", "length", "n")},
        **arm_of | {"ratio": ratio, "exact": _method(label) != "kvpress"},
        prediction=prediction,
        generated=len(prediction.split()),
        kept=kept,
        total=[HEADS * n] * LAYERS,
        counters=_counters(draw) if _method(label).split("_")[0] in MERGING else {},
        kv_bytes=sum(kept) * 2 * 64 * 2,
        batch_seconds=0.5,
        batch_rows=4,
        fidelity=_fidelity(float(share), draw) if fidelity else None,
    )


def _failed(record: Record) -> Record:
    return Record(**{**record.__dict__, "prediction": "", "error": "RuntimeError: simulated failure", "fidelity": None})


def _prediction(sample: dict[str, Any], right: float, draw: np.random.Generator) -> str:
    """Text whose score under the task's metric is about `right`."""
    metric, gold = TASKS[base_name(sample["dataset"])].metric, sample["answers"][0]
    if metric == "classification":
        others = [name for name in CLASSES if name != gold]
        return gold if draw.random() < right else others[draw.integers(len(others))]
    if metric in ("count", "retrieval", "retrieval_zh"):
        number = "".join(character for character in gold if character.isdigit())
        return " ".join(number if draw.random() < right else "7" for _ in range(4))
    if metric == "code_sim":
        return "".join(character if draw.random() < right else "~" for character in gold)
    return " ".join(word if draw.random() < right else f"other{draw.integers(99)}" for word in gold.split())


def _budgets(m: int, n: int, method: str) -> list[int]:
    """Entries of each layer and head: equal, or falling with depth for PyramidKV; the same sum."""
    if method != "pyramidkv" or m == n:
        return [m] * LAYERS
    steps = [3 * m // 8, m // 8]
    return [m + min(steps[0], n - m), m + min(steps[1], n - m), m - min(steps[1], n - m), m - min(steps[0], n - m)]


def _counters(draw: np.random.Generator) -> dict[str, list[float]]:
    routed = draw.uniform(0.6, 0.9, LAYERS).round(4)
    return {
        "routed": routed.tolist(),
        "dropped": (1 - routed).round(4).tolist(),
        "mean_gate": draw.uniform(0.2, 0.6, LAYERS).round(4).tolist(),
        "gate_zero": draw.uniform(0.1, 0.3, LAYERS).round(4).tolist(),
        "max_log_ratio": draw.uniform(0.5, 3.0, LAYERS).round(4).tolist(),
    }


def _fidelity(ratio: float, draw: np.random.Generator) -> dict[str, Any]:
    loss = (1 - ratio) * float(draw.uniform(0.5, 1.0))
    return {
        "kl": 0.4 * loss,
        "agreement": 1 - 0.3 * loss,
        "perplexity_ratio": 1 + 0.5 * loss,
        "divergence": int(draw.integers(0, 20)) if ratio < 1 else None,
        "attention_error": [0.1 * loss * (layer + 1) for layer in range(LAYERS)],
    }


def _draw(seed: int, *parts: object) -> np.random.Generator:
    digest = hashlib.sha256(json.dumps([seed, *parts]).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
