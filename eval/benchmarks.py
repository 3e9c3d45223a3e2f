"""The benchmark that a config names: each data YAML's name is a module of `eval` with ``load``."""

import importlib
import inspect
from typing import Any

from eval.config import RunPlan
from eval.sample import Benchmark

# name of the data to module and options besides those of the YAML
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "longbench_e": ("eval.longbench", {"e": True}),
}


def load_benchmark(plan: RunPlan) -> Benchmark:
    """Rows and prompts of the run."""
    name = plan.data["name"]
    module, fixed = SOURCES.get(name, (f"eval.{name}", {}))
    options = {key: value for key, value in plan.data.items() if key not in ("name", "limit")}
    load = importlib.import_module(module).load
    if "first" in inspect.signature(load).parameters:  # data from files; where rows are generated, all are first
        options["first"] = plan.first
    benchmark: Benchmark = load(limit=plan.limit, seed=plan.seed, **options, **fixed)
    return benchmark
