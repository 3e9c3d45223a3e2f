"""The file that `method=evolkv` reads: the weights, and everything that they depend on."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.arms import Arm
from eval.config import RunPlan
from eval.evolkv.search import HIGH, LOW, Found, Search
from eval.identity import identity_of
from eval.manifest import versions
from eval.runner import settings_of
from eval.sample import Benchmark
from eval.worker import settings_fields


def content_of(
    plan: RunPlan, arm: Arm, benchmark: Benchmark, options: Search, found: Found, interrupted: bool
) -> dict[str, Any]:
    """Content of a budget file: the weights, and everything that they depend on."""
    details = {name: value for name, value in asdict(options).items() if name not in ("output", "group", "seed")}
    return {
        "model": plan.model["name"],
        "identity": identity_of(plan),
        "ratio": arm.ratio_text,
        "seed": options.seed,
        "data": benchmark.name,
        "options": {key: value for key, value in plan.data.items() if key not in ("name", "limit")},
        "sample_ids": [sample.id for rows in benchmark.samples.values() for sample in rows],
        "sources": benchmark.sources,
        "group": options.group,
        "weights": list(found.weights),
        "score": found.score,
        "uniform": found.uniform,
        "evaluations": found.evaluations,
        "interrupted": interrupted,
        "search": {**details, "bounds": [LOW, HIGH]},
        "scoring": {"name": plan.scoring, "code_sim": plan.code_sim},
        "method": {key: value for key, value in arm.params.items() if key not in ("budget_file", "weights")},
        "settings": settings_fields(settings_of(plan)),
        "versions": versions(),
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a budget file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    os.replace(part, path)
