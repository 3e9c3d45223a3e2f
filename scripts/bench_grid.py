"""A grid from shared prefills and ragged batches against the same cells, each with a prefill and a decode of its own.

Both sides run in this process, in turn, with buffers sized once; prints seconds, the ratio and the peak memory of one
grid. ``--cells`` measures that many cells of the separate side, drawn at random, and scales.
"""

import os
import random
import sys
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.arguments import Parser, whole
from eval.efficiency.grids import Bench, bench, opened, texts
from eval.efficiency.measure import peak, timed
from selkv.errors import command

GRID = [
    "method=[full,selkv,snapkv,streamingllm,pyramidkv,chunkkv]",
    "ratio=[0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9]",
]
MIB = 2**20


def compare(arms: Bench, cells: int | None) -> None:
    """Time both sides and compare what they generate."""
    worker, units, prefills = arms.worker, arms.units, 0
    texts(worker, units[0], [0])  # warm-up
    shared, together = 0.0, []
    for unit in units:
        seconds, found = timed(lambda unit=unit: texts(worker, unit), worker.model.device)
        shared, prefills = shared + seconds, prefills + 1
        together.append(found)
        print(
            f"shared: {unit.dataset} {len(found)} cells in {seconds:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True
        )
    every = [(i, arm) for i, unit in enumerate(units) for arm in unit.arms]
    chosen = random.Random(0).sample(every, min(cells or len(every), len(every)))
    separate, equal = 0.0, 0
    for i, arm in chosen:
        seconds, found = timed(lambda i=i, arm=arm: texts(worker, units[i], [arm]), worker.model.device)
        separate, equal = separate + seconds, equal + (found[arm] == together[i][arm])
    scaled = separate * len(every) / len(chosen)
    print(
        f"{len(every)} cells of {len(units)} samples: shared {shared:.1f} s with {prefills} prefills; separate "
        f"{scaled:.1f} s (from {len(chosen)} cells measured in {separate:.1f} s); ratio {scaled / shared:.1f}; "
        f"{equal} of {len(chosen)} texts equal; load {os.getloadavg()[0]:.1f}"
    )


def memory(arms: Bench, before: int, limit: int) -> None:
    """Peak of one grid against weights, full cache and batch budget; `before` is the process without weights."""
    worker, unit = arms.worker, arms.units[0]
    worker.settings = worker.settings._replace(limit_bytes=limit)
    with peak(worker.model.device) as highest:
        found = texts(worker, unit)
    state = opened(worker, unit).state
    full = sum(x.nbytes for layer in state.layers for x in (layer.keys, layer.values))
    on_cpu = worker.model.device.type == "cpu"
    used = None if highest.bytes is None else highest.bytes - (before if on_cpu else 0)
    allowed = worker.weight_bytes + full + limit
    shown = "unknown" if used is None else f"{used / MIB:.0f} MiB, {used / allowed:.2f} of what is allowed"
    print(
        f"{len(found)} cells at {state.n} tokens: peak {shown}: weights {worker.weight_bytes / MIB:.0f} + full cache "
        f"{full / MIB:.0f} + batch budget {limit / MIB:.0f} = {allowed / MIB:.0f} MiB"
    )


@command
def main(arguments: list[str]) -> int:
    parser = Parser("bench_grid", str(__doc__))
    parser.add_argument("override", nargs="*", help="options of run.py: method=[...] ratio=[...] model=...")
    parser.add_argument("--tokens", type=whole(1), default=2000, help="length of the prompts (default: %(default)s)")
    parser.add_argument("--new-tokens", type=whole(1), default=32, help="tokens to decode (default: %(default)s)")
    parser.add_argument("--cells", type=whole(1), help="cells of the separate side to measure (default: all)")
    parser.add_argument(
        "--memory", type=whole(1), metavar="MIB", help="measure the peak under this batch budget instead"
    )
    options = parser.parse_args(arguments)
    arms = bench([*GRID, *options.override], options.tokens, options.new_tokens)
    if options.memory:
        memory(arms, psutil.Process().memory_info().rss - arms.worker.weight_bytes, options.memory * MIB)
    else:
        compare(arms, options.cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
