"""The manifest of a run: arms, keys and the facts that reproduce it. See `eval.view` for the layout."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from eval.arms import Arm, written
from eval.choices import file_of
from eval.config import RunPlan
from eval.outputs import writing
from eval.sample import Benchmark
from eval.view import MANIFEST
from selkv.errors import unknown
from selkv.method import Method
from selkv.named import read_yaml

LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "hydra-core")


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that results depend on."""
    found = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **found}


def device_name(device: torch.device) -> str:
    """The device in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def default_device(wanted: str, option: str = "model.device") -> torch.device:
    """The device that an option names; ``auto`` is the first GPU, else the CPU.

    Raises
    ------
    UserError
        Where it is not on this machine.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    here = ["cpu", *(["cuda", *gpus] if gpus else []), *(["mps"] if torch.backends.mps.is_available() else [])]
    if wanted not in ("auto", *here):
        fix = "PyTorch sees no NVIDIA GPU on this machine" if wanted.startswith("cuda") and not gpus else ""
        raise unknown(option, wanted, ["auto", *here], fix)
    return torch.device(("cuda" if gpus else "cpu") if wanted == "auto" else wanted)


def manifest_of(
    plan: RunPlan,
    benchmark: Benchmark,
    arms: Sequence[Arm],
    methods: Sequence[Method],
    keys: Mapping[str, Sequence[Sequence[str]]],
    model: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that an experiment folder says of its cells."""
    return {
        "experiment": plan.name,
        "model": plan.model["name"],
        "data": benchmark.name,
        "scoring": {"name": plan.scoring, "code_sim": plan.code_sim},
        "protocol": {**plan.protocol, "compress": plan.compress, "max_prompt_tokens": plan.model["max_prompt_tokens"]},
        "sliding_layers": plan.sliding_layers,
        "limit": plan.limit,
        "seed": plan.seed,
        "notes": list(benchmark.notes),
        "arms": [
            {
                "label": arm.label,
                "method": arm.method,
                "params": arm.params,
                "version": method.version,
                "ratio": arm.ratio_text,
                "exact": method.exact,
                "note": "; ".join(filter(None, (method.label, changes(arm)))),
            }
            for arm, method in zip(arms, methods, strict=True)
        ],
        "tasks": {
            name: {"rows": benchmark.expected[name], "selected": len(samples)}
            for name, samples in benchmark.samples.items()
        },
        "cells": keys,
        "identity": model,
        "device": device_name(default_device(plan.model["device"])),
        "versions": versions(),
        "sources": benchmark.sources,
    }


def changes(arm: Arm) -> str:
    """Hyperparameters that differ from the method's YAML and that the label, a grid's, does not name."""
    usual = read_yaml(file_of("method", arm.method))
    changed = [
        f"{key}={written(value)} instead of {written(usual.get(key))}"
        for key, value in arm.params.items()
        if value != usual.get(key) and f" {key}=" not in arm.label and "${" not in str(usual.get(key))
    ]
    return f"with {', '.join(changed)}" if changed else ""


def write(folder: Path, manifest: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Write ``manifest.json`` and ``config.yaml`` whole or not at all."""
    texts = {
        MANIFEST: json.dumps(manifest, indent=1, ensure_ascii=False, default=str) + "\n",
        "config.yaml": yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True),
    }
    with writing(folder, "give results=FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            part = folder / f"{name}.part"
            part.write_text(text, encoding="utf-8")
            os.replace(part, folder / name)
