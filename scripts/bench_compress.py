"""Cost of compressing one layer, method by method, as a Markdown table.

Random tensors in the shape of one Llama-3.1 layer; window attention is computed anew each time and counted. What a
method needs of all prompt queries (column sums, bucket attention) comes from prefill and is only marked.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.arguments import Parser, whole
from eval.choices import choices
from eval.memory import require
from selkv.budget import kept_per_head, parse_ratio
from selkv.errors import UserError, command, unknown
from selkv.method import Method
from selkv.named import method_named
from selkv.state import LayerState, Needs


class OneLayer(NamedTuple):
    """A prompt of a model with a single layer."""

    layers: list[LayerState]


def methods(names: Sequence[str] = ()) -> Iterator[tuple[str, Method]]:
    """Methods by name, all by default, with the defaults of their YAML (EvolKV with equal weights)."""
    # kvpress's presses compress during a prefill of their own
    known = [name for name in choices("method") if not name.startswith(("full", "kvpress"))]
    for name in names or known:
        if name not in known:
            raise unknown("method", name, known)
        yield name, method_named(name, **({"weights": [1.0]} if name == "evolkv" else {}))


def random_layer(needs: Needs, shape: argparse.Namespace) -> LayerState:
    """Layer of random numbers with all that the methods need."""
    draw = torch.Generator().manual_seed(0)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=draw)

    n = shape.n
    return LayerState(
        keys=random(shape.kv_heads, n, shape.d),
        values=random(shape.kv_heads, n, shape.d),
        queries=random(shape.heads, min(n, needs.window), shape.d),
        positions=torch.arange(n),
        scale=shape.d**-0.5,
        inv_freq=10000.0 ** -(torch.arange(0, shape.d, 2) / shape.d),
        column_mass=random(shape.heads, n).abs() if needs.column_mass else None,
        block_attention={size: random(shape.heads, n, size).abs() for size in needs.blocks},
    )


@torch.no_grad()
def seconds(method: Method, layer: LayerState, ratio: Fraction) -> float:
    """Time of one layer's budget and compression."""
    begin = time.perf_counter()
    method.compress(layer, method.budgets(OneLayer([layer]), ratio)[0])
    return time.perf_counter() - begin


def shape_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    Raises
    ------
    UserError
        For a shape that no layer has.
    """
    parser = Parser("bench_compress", str(__doc__))
    parser.add_argument("method", nargs="*", help="names of configs/method/ (default: all)")
    parser.add_argument("--n", type=whole(1), default=32768, help="prompt tokens (default: %(default)s)")
    parser.add_argument(
        "--ratio", type=parse_ratio, default=Fraction(1, 4), help="fraction of the entries kept (default: %(default)s)"
    )
    parser.add_argument("--heads", type=whole(1), default=32, help="query heads (default: %(default)s)")
    parser.add_argument("--kv-heads", type=whole(1), default=8, help="KV heads (default: %(default)s)")
    parser.add_argument("--d", type=whole(2), default=128, help="head size (default: %(default)s)")
    parser.add_argument(
        "--rounds",
        type=whole(1),
        default=5,
        help="rounds over all methods, of which each one's fastest counts (default: %(default)s)",
    )
    shape = parser.parse_args(arguments)
    if shape.heads % shape.kv_heads:
        raise UserError(f"--heads {shape.heads} is no multiple of --kv-heads {shape.kv_heads}")
    if shape.d % 2:
        raise UserError(f"--d {shape.d} is odd; rotary positions turn pairs, give an even number")
    return shape


@command
def main(arguments: list[str]) -> int:
    shape = shape_of(arguments)
    chosen = dict(methods(["snapkv"])) | dict(methods(shape.method))
    needs = {name: method.needs(shape.n, kept_per_head(shape.n, shape.ratio)) for name, method in chosen.items()}
    require(8 * shape.n * shape.d * shape.kv_heads, torch.device("cpu"), f"a layer of {shape.n} tokens")
    layer = random_layer(reduce(Needs.union, needs.values()), shape)
    # rounds, so that what else the machine does hits all methods alike; the first warms up
    rounds = [{name: seconds(m, layer, shape.ratio) for name, m in chosen.items()} for _ in range(shape.rounds + 1)]
    print("| method | ms a layer | of SnapKV | attention of queries |\n|---|---:|---:|---|")
    fastest = {name: min(times[name] for times in rounds[1:]) for name in chosen}
    for name, wanted in sorted(needs.items()):
        window = f"last {wanted.window}" if wanted.window else "none"
        queries = "all" if wanted.column_mass or wanted.blocks else window
        print(
            f"| {name} | {1000 * fastest[name]:.0f} | {fastest[name] / fastest['snapkv']:.2f} | {queries} |", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
