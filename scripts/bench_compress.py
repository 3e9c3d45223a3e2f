"""Cost of compressing one layer, method by method, as a Markdown table.

Random tensors in the shape of one Llama-3.1 layer; window attention is computed anew each time and counted. What a
method needs of all prompt queries (column sums, bucket attention) comes from prefill and is only marked.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from selkv.method import Method
from selkv.state import LayerState

METHODS = Path(__file__).resolve().parents[1] / "configs" / "method"


class OneLayer(NamedTuple):
    """A prompt of a model with a single layer."""

    layers: list[LayerState]


def methods(names: list[str]) -> Iterator[tuple[str, Method]]:
    """Methods by name, all by default, with the defaults of their YAML (EvolKV with equal weights)."""
    for name in names or sorted(path.stem for path in METHODS.glob("*.yaml") if path.stem != "full"):
        config: Any = OmegaConf.load(METHODS / f"{name}.yaml")
        yield name, instantiate(config, **({"weights": [1.0]} if "budget_file" in config else {}))


def layer_for(method: Method, n: int, kept: int, shape: argparse.Namespace) -> LayerState:
    """Random layer with what the method needs."""
    needs, draw = method.needs(n, kept), torch.Generator().manual_seed(0)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=draw)

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


def seconds(method: Method, layer: LayerState, ratio: Fraction, repeats: int) -> float:
    """Median time of budgets and compression of the layer, after one run to warm up."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        budget = method.budgets(OneLayer([layer]), ratio)[0]
        method.compress(layer, budget)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("method", nargs="*", help="names of configs/method/; all by default")
    parser.add_argument("--n", type=int, default=32768, help="prompt tokens")
    parser.add_argument("--ratio", type=Fraction, default=Fraction(1, 4), help="fraction of the entries kept")
    parser.add_argument("--heads", type=int, default=32, help="query heads")
    parser.add_argument("--kv-heads", type=int, default=8, help="KV heads")
    parser.add_argument("--d", type=int, default=128, help="head size")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs a method; the median counts")
    shape = parser.parse_args()
    kept = shape.n * shape.ratio.numerator // shape.ratio.denominator
    measured, needs = {}, {}
    for name, method in dict([("snapkv", dict(methods(["snapkv"]))["snapkv"]), *methods(shape.method)]).items():
        with torch.no_grad():
            layer = layer_for(method, shape.n, kept, shape)
            measured[name] = seconds(method, layer, shape.ratio, shape.repeats)
        wanted = method.needs(shape.n, kept)
        needs[name] = (
            "all" if wanted.column_mass or wanted.blocks else f"last {wanted.window}" if wanted.window else "none"
        )
    print("| method | ms a layer | of SnapKV | attention of queries |\n|---|---:|---:|---|")
    for name in sorted(measured):
        print(f"| {name} | {1000 * measured[name]:.0f} | {measured[name] / measured['snapkv']:.2f} | {needs[name]} |")


if __name__ == "__main__":
    main()
