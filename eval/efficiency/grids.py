"""Real prompts through a worker without stop tokens, so that every side of a comparison decodes the same number."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from eval.app import plan_of
from eval.arms import instantiate
from eval.benchmarks import load_benchmark
from eval.cells import Unit
from eval.config import RunPlan
from eval.engines.local import load_worker
from eval.outcome import Cell
from eval.runner import settings_of
from eval.worker import Task, Worker
from selkv.decode import Stop

TASKS = ("qasper", "hotpotqa", "gov_report", "passage_retrieval_en")


class Bench(NamedTuple):
    """A plan with its loaded worker and units: one sample of each task, all arms."""

    plan: RunPlan
    worker: Worker
    units: list[Unit]


def bench(overrides: Sequence[str], tokens: int, new_tokens: int, compress: str = "prompt") -> Bench:
    """Load a model and four of the built-in prompts, about `tokens` long.

    Parameters
    ----------
    overrides : sequence of str
        As for run.py: methods, ratios, model.
    tokens, new_tokens : int
        Length of the prompts, tokens to decode.
    compress : str
        ``prompt`` or ``context``: before or after the question is known.
    """
    prompts = ["data=mini", f"data.tokens={tokens}", f"data.tasks=[{','.join(TASKS)}]", "limit.first=1"]
    plan = plan_of([*prompts, f"compress={compress}", *overrides])
    benchmark, methods = load_benchmark(plan), [instantiate(arm) for arm in plan.arms]
    worker = load_worker(plan, benchmark, methods, settings_of(plan)._replace(fidelity=False))
    units = [
        Unit(name, rows[0], replace(benchmark.prompts[name], max_new_tokens=new_tokens), tuple(range(len(methods))), ())
        for name, rows in benchmark.samples.items()
    ]
    return Bench(plan, worker, units)


def opened(worker: Worker, unit: Unit) -> Task:
    """The unit after its prefill, without stop tokens."""
    return worker.prefill(unit)._replace(stop=Stop())


@torch.no_grad()
def texts(worker: Worker, unit: Unit, arms: Sequence[int] | None = None) -> dict[int, list[int]]:
    """Ids that each arm generates, from one prefill; an error is raised, not recorded."""
    unit = unit if arms is None else replace(unit, arms=tuple(arms))
    task = opened(worker, unit)
    found = {}
    for batch in worker.batches(unit.arms, task):
        for cell in worker.decode([Cell(arm) for arm in batch], task):
            found[cell.arm] = list(cell.text)
    return found
