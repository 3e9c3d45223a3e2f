"""A run from plan to table: what is missing is computed, everything is read back from the records."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from eval.arms import Arm, instantiate
from eval.benchmarks import load_benchmark
from eval.cells import Unit, keys_of, units_of
from eval.config import RunPlan
from eval.identity import identity_of, model_options, protocol_of
from eval.manifest import manifest_of, write
from eval.memory import free_bytes
from eval.progress import Meter
from eval.sample import Benchmark
from eval.store import Store
from eval.worker import Settings, Worker, settings_fields
from selkv.load import load_model, load_tokenizer
from selkv.method import Method


def run(plan: RunPlan) -> int:
    """Compute the missing cells of a plan, then write and show its tables.

    Returns
    -------
    int
        0; 1 where a cell failed; 130 after Ctrl-C.
    """
    methods = [instantiate(arm) for arm in plan.arms]
    benchmark = load_benchmark(plan)
    identity = identity_of(plan)
    settings = Settings(
        protocol=protocol_of(plan),
        prefill=plan.prefill,
        limit_bytes=0,
        sliding_layers=plan.sliding_layers,
        compress=plan.compress,
        deterministic=plan.deterministic,
        fidelity=plan.fidelity,
    )
    keys = keys_of(benchmark, plan.arms, methods, {"model": identity, **settings_fields(settings)})
    folder = plan.results / plan.name / plan.model["name"]
    with Store(plan.results, plan.model["name"], benchmark.name) as store:
        units = units_of(benchmark, keys, finished(store, benchmark, plan.fidelity))
        write(folder, manifest_of(plan, benchmark, plan.arms, methods, keys, identity), plan.config)
        try:
            failed = compute(plan, units, plan.arms, methods, settings, store)
        except KeyboardInterrupt:
            print("\ninterrupted; finished cells are kept. Run the same command again to continue.", file=sys.stderr)
            return 130
    show(plan, folder)
    return 1 if failed else 0


def finished(store: Store, benchmark: Benchmark, fidelity: bool) -> dict[str, set[str]]:
    """Keys of each dataset that need no work: a result, with fidelity where the run asks for it."""
    return {
        dataset: {
            key
            for key, record in store.stored(dataset).items()
            if record.error is None and (record.fidelity is not None or not fidelity)
        }
        for dataset in benchmark.samples
    }


def compute(
    plan: RunPlan,
    units: Sequence[Unit],
    arms: Sequence[Arm],
    methods: Sequence[Method],
    settings: Settings,
    store: Store,
) -> int:
    """Compute units and append their records; returns the number of failed cells."""
    if not units:
        return 0
    path, options = model_options(plan)
    tokenizer = load_tokenizer(path, **{k: v for k, v in options.items() if k in ("revision", "trust_remote_code")})
    model = load_model(path, **options)
    limit = int(free_bytes(model.device) * plan.engine["memory_fraction"])
    print(f"decode batches may take {limit / 2**30:.1f} GiB (engine.memory_fraction)", file=sys.stderr)
    worker = Worker(
        model,
        tokenizer,
        arms,
        methods,
        settings._replace(limit_bytes=limit),
        {"model": plan.model["name"], "data": store.data},
    )
    with Meter(sum(len(unit.arms) for unit in units), plan.events) as meter:
        for unit in units:
            meter.say(f"{unit.dataset} {unit.sample.index}")
            records = worker.run(unit, meter.advance)
            store.append(unit.dataset, records)
            meter.count(
                sum(record.generated for record in records), sum(record.error is not None for record in records)
            )
    return meter.failed


def show(plan: RunPlan, folder: Any) -> None:
    """Write tables and report from the records, print the table and what to do next."""
    from eval import tables
    from eval.view import load

    view = load(folder, plan.results)
    options = tables.Options(baseline=plan.baseline)
    tables.write_tables(view, folder, options)
    console = Console()
    console.print(tables.console(view, options))
    console.print(f"Results: {folder}/ (table.md, table.csv, table.tex, scores.csv, manifest.json)")
