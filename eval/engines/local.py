"""The default engine: this process, one model replica."""

import sys
from collections.abc import Iterator, Sequence

from transformers.utils.logging import disable_progress_bar

from eval.cells import Unit
from eval.config import RunPlan
from eval.identity import model_options
from eval.memory import free_bytes
from eval.progress import Meter
from eval.prompts import check_room
from eval.records import Record
from eval.sample import Benchmark
from eval.worker import Settings, Worker
from selkv.load import load_model, load_tokenizer
from selkv.method import Method


def work(
    plan: RunPlan,
    benchmark: Benchmark,
    units: Sequence[Unit],
    methods: Sequence[Method],
    settings: Settings,
    meter: Meter,
) -> Iterator[tuple[str, list[Record]]]:
    """Records of each unit, in order, with the dataset that they belong to."""
    worker = load_worker(plan, benchmark, methods, settings)
    for unit in units:
        meter.say(f"{unit.dataset} {unit.sample.index}")
        yield unit.dataset, worker.run(unit, meter.advance)


def load_worker(plan: RunPlan, benchmark: Benchmark, methods: Sequence[Method], settings: Settings) -> Worker:
    """Load model and tokenizer, and bound the decode batches by the memory that is then free."""
    if not sys.stderr.isatty():
        disable_progress_bar()  # a log file need not hold every redrawing of a bar
    path, options = model_options(plan)
    tokenizer = load_tokenizer(path, **{k: v for k, v in options.items() if k in ("revision", "trust_remote_code")})
    model = load_model(path, **options)
    window = model.config.get_text_config().max_position_embeddings
    check_room(benchmark.prompts, tokenizer, settings.protocol, window)
    limit = int(free_bytes(model.device) * plan.engine["memory_fraction"])
    print(f"decode batches may take {limit / 2**30:.1f} GiB (engine.memory_fraction)", file=sys.stderr)
    place = {"model": plan.model["name"], "data": benchmark.name}
    return Worker(model, tokenizer, plan.arms, methods, settings._replace(limit_bytes=limit), place)
