"""A run from plan to table: what is missing is computed, everything is read back from the records."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from eval import dry_run, tracking
from eval.arms import Arm, instantiate
from eval.benchmarks import load_benchmark
from eval.cells import Unit, keys_of, units_of
from eval.config import RunPlan
from eval.identity import identity_of, protocol_of
from eval.manifest import manifest_of, write
from eval.progress import Meter
from eval.sample import Benchmark
from eval.store import Store
from eval.worker import Settings, settings_fields
from selkv.errors import Missing, UserError
from selkv.method import Method

NEXT = (
    ("'ratio=[0.1,0.25,0.5]'", "three ratios, from one prefill per sample"),
    ("method=selkv 'grid.selkv.alpha=[0,0.5,1]'", "an ablation grid"),
    ("name=NAME", "another folder of results, so that this report stays"),
    ("--help", "all methods, models, data and options"),
)


def run(plan: RunPlan) -> int:
    """Compute the missing cells of a plan, then write and show its tables.

    Returns
    -------
    int
        0; 1 where a cell failed; 130 after Ctrl-C.
    """
    tracking.require(plan.tracking)
    methods = [instantiate(arm) for arm in plan.arms]
    if plan.dry_run:
        return preview(plan, methods)
    benchmark = load_benchmark(plan)
    refuse_training_samples(benchmark, plan.arms, methods)
    settings, identity = settings_of(plan), identity_of(plan)
    keys = keys_of(benchmark, plan.arms, methods, {"model": identity, **settings_fields(settings)})
    folder = plan.results / plan.name / plan.model["name"]
    with Store(plan.results, plan.model["name"], benchmark.name) as store:
        units = units_of(benchmark, keys, finished(store, benchmark, plan.fidelity))
        write(folder, manifest_of(plan, benchmark, plan.arms, methods, keys, identity), plan.config)
        try:
            failed = compute(plan, benchmark, units, methods, settings, store)
        except KeyboardInterrupt:
            print("\ninterrupted; finished cells are kept. Run the same command again to continue.", file=sys.stderr)
            return 130
    show(plan, folder)
    if failed:
        return 1
    if plan.events is None:
        print("Worth adding to the command:", *(f"  {option:<42} {what}" for option, what in NEXT), sep="\n")
    return 0


def refuse_training_samples(benchmark: Benchmark, arms: Sequence[Arm], methods: Sequence[Method]) -> None:
    """Raise UserError where a method was fitted to a sample that the run would report."""
    reported = {sample.id for samples in benchmark.samples.values() for sample in samples}
    for arm, method in zip(arms, methods, strict=True):
        if both := sorted(method.trained_on & reported):
            raise UserError(
                f"{arm.label} was trained on {len(both)} of the samples that this run reports ({both[0]}, ...); "
                "choose others with seed= or limit=, or train on others (search.seed=...)"
            )


def settings_of(plan: RunPlan) -> Settings:
    """What the plan asks of every unit; the batch limit is set once the model is loaded."""
    return Settings(
        protocol=protocol_of(plan),
        prefill=plan.prefill,
        limit_bytes=0,
        sliding_layers=plan.sliding_layers,
        compress=plan.compress,
        deterministic=plan.deterministic,
        fidelity=plan.fidelity,
    )


def preview(plan: RunPlan, methods: Sequence[Method]) -> int:
    """Print what the run would do; needs neither weights nor hub."""
    benchmark, why = dry_run.reachable(plan)
    done = None
    if benchmark is not None:
        try:
            common = {"model": identity_of(plan), **settings_fields(settings_of(plan))}
            keys = keys_of(benchmark, plan.arms, methods, common)
            cells = finished(Store(plan.results, plan.model["name"], benchmark.name), benchmark, plan.fidelity)
            done = {task: sum(key in cells[task] for row in rows for key in row) for task, rows in keys.items()}
        except Missing as problem:
            why = str(problem)
    dry_run.show(plan, benchmark, done, why)
    return 0


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
    benchmark: Benchmark,
    units: Sequence[Unit],
    methods: Sequence[Method],
    settings: Settings,
    store: Store,
) -> int:
    """Compute units with the chosen engine and append their records as they come; returns the failed cells."""
    if not units:
        return 0
    engine = importlib.import_module(f"eval.engines.{plan.engine['name']}")
    with Meter(sum(len(unit.arms) for unit in units), plan.events) as meter:
        for dataset, records in engine.work(plan, benchmark, units, methods, settings, meter):
            store.append(dataset, records)
            meter.count(records)
    return meter.failed


def show(plan: RunPlan, folder: Path) -> None:
    """Write tables and report from the records, print the table."""
    from eval import tables
    from eval.report import rebuild
    from eval.view import load

    view = load(folder, plan.results)
    options = tables.Options(baseline=plan.baseline)
    if plan.report:
        rebuild([view], folder, options)
    else:
        tables.write_tables(view, folder, options)
    console = Console(stderr=plan.events is not None)  # standard output is for the events
    console.print(tables.console(view, options))
    tracking.log(plan, folder, view)
    files = "table.md, table.csv, table.tex, scores.csv" + (", report.html, plots" if plan.report else "")
    console.print(f"\nResults are in {folder}/ ({files}).", highlight=False)
