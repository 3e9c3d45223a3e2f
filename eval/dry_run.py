"""What a run would do: cells, how many are done, time where a rate was measured before, memory. Needs no weights."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.benchmarks import load_benchmark
from eval.config import RunPlan
from eval.records import Record, latest, read
from eval.sample import Benchmark
from eval.tasks import ROWS_E, task_of
from selkv.errors import Missing, UserError


def show(plan: RunPlan, benchmark: Benchmark | None, done: dict[str, int] | None, why: str) -> None:
    """Print the plan.

    Parameters
    ----------
    plan : RunPlan
    benchmark : Benchmark or None
        None where its files are not here: LongBench's known row counts are used.
    done : dict of str to int, optional
        Finished cells of each dataset; None where they cannot be known.
    why : str
        Reason for what is not known.
    """
    console = Console()
    rows = samples(plan, benchmark)
    arms = len(plan.arms)
    table = Table(title=f"{plan.name}: {plan.model['name']} on {plan.data['name']}, {arms} rows a table")
    for column in ("task", "samples", "prefills", "cells", "done"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for task, count in rows.items():
        table.add_row(task, str(count), str(count), str(count * arms), "?" if done is None else str(done[task]))
    total, finished = sum(rows.values()) * arms, sum((done or {}).values())
    table.add_section()
    table.add_row(
        "all", str(sum(rows.values())), str(sum(rows.values())), str(total), "?" if done is None else str(finished)
    )
    console.print(table)
    console.print("rows: " + ", ".join(f"{arm.label} at {arm.ratio_text}" for arm in plan.arms))
    console.print(time_line(total - finished, rate(plan)))
    console.print(memory_line(plan))
    if why:
        console.print(f"[yellow]not known here: {why}[/yellow]")


def samples(plan: RunPlan, benchmark: Benchmark | None) -> dict[str, int]:
    """Samples of each task."""
    if benchmark is not None:
        return {task: len(rows) for task, rows in benchmark.samples.items()}
    by_length = plan.data["name"] == "longbench_e"
    known = {name: ROWS_E[name] if by_length else task_of(name).rows for name in plan.data["tasks"]}
    return {name: rows if plan.limit is None else min(plan.limit, rows) for name, rows in known.items()}


def rate(plan: RunPlan) -> float | None:
    """Mean seconds a cell of this model on this data, from the records there are."""
    seconds = [
        record.seconds
        for record in stored(plan.results / "cells" / plan.model["name"] / plan.data["name"])
        if record.error is None and record.seconds
    ]
    return sum(seconds) / len(seconds) if seconds else None


def stored(folder: Path) -> list[Record]:
    """All records of a folder of cells."""
    return [record for path in sorted(folder.glob("*.jsonl")) for record in latest(read(path)).values()]


def time_line(cells: int, seconds: float | None) -> str:
    """Estimated time of the missing cells."""
    if seconds is None:
        return f"{cells} cells to compute; no rate was measured here before"
    return f"{cells} cells to compute, about {cells * seconds / 60:.1f} min at {seconds:.2f} s a cell measured before"


def memory_line(plan: RunPlan) -> str:
    """Full-cache bytes of the longest prompt, where the model's shape is at hand."""
    shape = model_shape(plan)
    if shape is None:
        return "memory: the model's shape is not known here (its config.json is not on this machine)"
    entry = 2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * shape["bytes"]
    longest = plan.model["max_prompt_tokens"]
    return (
        f"memory: {entry / 1024:.3g} KiB a token, so the full cache of {longest} prompt tokens takes "
        f"{entry * longest / 2**30:.2f} GiB; decode batches take {plan.engine['memory_fraction']:.0%} of what is free"
    )


def model_shape(plan: RunPlan) -> dict[str, Any] | None:
    """Layers, KV heads, head size and bytes an element, from a local configuration; None where there is none."""
    from transformers import AutoConfig

    from eval.identity import model_path

    try:
        config = AutoConfig.from_pretrained(model_path(plan), local_files_only=True).get_text_config()
    except (OSError, UserError, ValueError):
        return None
    heads = config.num_attention_heads
    dtype = str(getattr(config, "dtype", "")) if plan.model["dtype"] == "auto" else plan.model["dtype"]
    return {
        "layers": config.num_hidden_layers,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "bytes": 4 if dtype.endswith("float32") else 2,
    }


def reachable(plan: RunPlan) -> tuple[Benchmark | None, str]:
    """The benchmark, or why it is not here; a mistake in the options is raised."""
    try:
        return load_benchmark(plan), ""
    except Missing as problem:
        return None, str(problem)
