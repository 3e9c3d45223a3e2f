"""The operators whose speed is watched, on one layer of a mid-sized model, and a matmul that they are measured against.

``python -m tests.benchmarks.operators`` writes the baseline anew.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from selkv.cache import CompressedLayer
from selkv.compensate import attention_ratio
from selkv.merge import absorb
from selkv.routing import bucket_leaders, own_or
from selkv.scores import group_reduce, mask_of, top
from selkv.selkv import SelKV
from selkv.state import LayerState, keep

BASELINE = Path(__file__).with_name("baseline.json")
HEADS, KV_HEADS, N, D, WINDOW = 16, 4, 8192, 64, 32
KEPT = N // 4


def layer() -> LayerState:
    draw = torch.Generator().manual_seed(0)
    return LayerState(
        keys=torch.randn(KV_HEADS, N, D, generator=draw),
        values=torch.randn(KV_HEADS, N, D, generator=draw),
        queries=torch.randn(HEADS, WINDOW, D, generator=draw),
        positions=torch.arange(N),
        scale=D**-0.5,
    )


def cases() -> dict[str, Callable[[], Any]]:
    state = layer()
    attention = group_reduce(state.window_attention(WINDOW), KV_HEADS).sum(1)  # (Hkv, n)
    index = top(attention, KEPT)
    kept = mask_of(index, N)
    target, found = bucket_leaders(attention, kept, 32)
    routed = found & ~kept
    target = own_or(target, routed)
    _, gate = absorb(state.values, attention, index, target, routed, "cosine")
    rows = [keep(state, index[:, : KEPT - 64 * i]) for i in range(8)]
    lengths = torch.full((8,), N)
    return {
        "window attention": lambda: state.window_attention(WINDOW),
        "selection": lambda: top(attention, KEPT),
        "routing": lambda: bucket_leaders(attention, kept, 32),
        "merge": lambda: absorb(state.values, attention, index, target, routed, "cosine"),
        "compensation": lambda: attention_ratio(attention, target, gate).log(),
        "ragged stacking": lambda: CompressedLayer(rows, lengths, 32),
        "selkv, one layer": lambda: SelKV().compress(state, KV_HEADS * KEPT),
    }


def reference() -> Callable[[], Any]:
    x = torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
    return lambda: x @ x


def fastest(work: Callable[[], Any], rounds: int = 15) -> float:
    """Seconds of the fastest round: the one that the machine disturbed least."""
    times = []
    for _ in range(rounds + 2):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times[2:])


def main() -> None:
    torch.set_num_threads(1)
    unit = fastest(reference(), 50)
    ratios = {name: round(fastest(work, 50) / unit, 2) for name, work in cases().items()}
    BASELINE.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")
    print(BASELINE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
