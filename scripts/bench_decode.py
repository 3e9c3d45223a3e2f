"""Decoding where attention dominates: full cache against SelKV, and both against the bare operations of a step.

A random model and random caches (no prefill: it would take minutes on a CPU). The bare step is what cannot be left out:
``scaled_dot_product_attention`` over the same buffers and the model's matmuls, nothing else. All in turn, in one
process, with buffers sized once.
"""

import os
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

import torch
import torch.nn.functional as F

from eval.arguments import Parser, whole
from eval.efficiency.measure import spread, timed
from eval.efficiency.models import Shape, random_model
from eval.efficiency.roofline import decode_work, measured_rates
from eval.manifest import default_device
from eval.memory import require
from selkv.attention import fold
from selkv.budget import parse_ratio
from selkv.cache import CompressedCache
from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, greedy
from selkv.errors import command
from selkv.full import Full
from selkv.prefill import Prefill
from selkv.selkv import SelKV
from selkv.state import LayerState

WINDOW = 32


def random_prefill(model: Any, n: int, shape: Shape) -> Prefill:
    """A prompt's state with random keys, values and queries."""
    draw = torch.Generator().manual_seed(0)

    def random(heads: int, length: int) -> torch.Tensor:
        return torch.randn(heads, length, shape.head_dim, generator=draw).to(model.device, model.dtype)

    layers = [
        LayerState(
            keys=random(shape.kv_heads, n),
            values=random(shape.kv_heads, n),
            queries=random(shape.heads, WINDOW),
            positions=torch.arange(n, device=model.device),
            scale=shape.head_dim**-0.5,
            layer=i,
            layers=shape.layers,
        )
        for i in range(shape.layers)
    ]
    return Prefill(layers, torch.zeros(shape.vocab, device=model.device), n)


@torch.no_grad()
def bare_step(model: Any, cache: CompressedCache) -> Callable[[], None]:
    """The matmuls and the attention of one step over a cache's buffers."""
    config = model.config
    x = torch.randn(1, config.hidden_size, device=model.device, dtype=model.dtype)
    wide = torch.randn(1, config.intermediate_size, device=model.device, dtype=model.dtype)
    query = torch.randn(1, config.num_attention_heads, 1, config.head_dim, device=model.device, dtype=model.dtype)
    folded, flat = fold(query, config.num_key_value_heads), query.reshape(1, -1)

    @torch.no_grad()
    def step() -> None:
        for block, layer in zip(model.model.layers, cache.layers, strict=True):
            attention, mlp = block.self_attn, block.mlp
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
                projection(x)
            keys, values = layer.keys[:, :, : layer.used], layer.values[:, :, : layer.used]
            mask = None if layer.mask is None else layer.mask[..., : layer.used]
            F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
            attention.o_proj(flat), mlp.down_proj(wide)
        model.lm_head(x)

    return step


def options_of(arguments: Sequence[str]) -> Any:
    """Read the command line."""
    parser = Parser("bench_decode", str(__doc__))
    parser.add_argument("--n", type=whole(WINDOW), default=32768, help="prompt tokens (default: %(default)s)")
    parser.add_argument(
        "--ratio", type=parse_ratio, default=Fraction(1, 4), help="fraction of the entries kept (default: %(default)s)"
    )
    parser.add_argument("--steps", type=whole(2), default=16, help="tokens to decode a repeat (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=whole(1), default=5, help="timed repeats after one to warm up (default: %(default)s)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    return parser.parse_args(arguments)


@command
def main(arguments: list[str]) -> int:
    options = options_of(arguments)
    shape, device = Shape(), default_device(options.device, "--device")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    cache = 2 * shape.layers * shape.kv_heads * shape.head_dim * options.n * dtype.itemsize
    require(2 * cache, device, f"a prompt of {options.n} tokens and a copy of it")
    model = random_model(shape, options.n + options.steps, device, dtype)
    rates, state = measured_rates(device, dtype), random_prefill(model, options.n, shape)
    jobs = {"full": Job(Full(), Fraction(1)), f"selkv {options.ratio}": Job(SelKV(), options.ratio)}
    seen: dict[str, list[float]] = {name: [] for arm in jobs for name in (arm, f"{arm}, bare")}
    bytes_read = {}
    for turn in range(options.repeats + 1):
        for name, job in jobs.items():
            with torch.no_grad():
                cache, _ = compressed_cache([job], state, options.steps)
            step = bare_step(model, cache)
            bytes_read[name] = sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
            bare, _ = timed(lambda step=step: [step() for _ in range(options.steps - 1)], device)
            ours, _ = timed(lambda cache=cache: greedy(model, cache, state.logits, options.steps, Stop()), device)
            if turn:
                seen[name].append(ours / (options.steps - 1))
                seen[f"{name}, bare"].append(bare / (options.steps - 1))
    print(f"{rates.bandwidth / 1e9:.1f} GB/s, {rates.operations / 1e9:.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}")
    print("| cache | step ms | low to high | of bare | of roofline |\n|---|---:|---:|---:|---:|")
    median = {name: spread(times) for name, times in seen.items()}
    for name in jobs:
        own, least = median[name], decode_work(model, bytes_read[name]).least_seconds(rates)
        print(
            f"| {name} | {1000 * own.median:.1f} | {1000 * own.low:.1f} to {1000 * own.high:.1f} | "
            f"{median[f'{name}, bare'].median / own.median:.2f} | {least / own.median:.2f} |"
        )
    full, small = (median[name].median for name in jobs)
    print(f"decoding at ratio {options.ratio}: {full / small:.2f} times the full cache's rate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
