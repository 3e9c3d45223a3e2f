"""Cost of compressing one layer, method by method, as a Markdown table.

Random tensors in the shape of one Llama-3.1 layer; window attention is computed anew each time and counted. What a
method needs of all prompt queries (column sums, bucket attention) comes from prefill and is only marked.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from selkv.method import Method
from selkv.state import LayerState, Needs

METHODS = Path(__file__).resolve().parents[1] / "configs" / "method"


class OneLayer(NamedTuple):
    """A prompt of a model with a single layer."""

    layers: list[LayerState]


def methods(names: list[str]) -> Iterator[tuple[str, Method]]:
    """Methods by name, all by default, with the defaults of their YAML (EvolKV with equal weights)."""
    pure = (path.stem for path in METHODS.glob("*.yaml") if not path.stem.startswith(("full", "kvpress")))
    for name in names or sorted(pure):
        root = OmegaConf.create({"seed": 0, "method": OmegaConf.load(METHODS / f"{name}.yaml")})
        config: Any = root.method
        cls: Any = get_class(config._target_)
        if not cls.exact:  # kvpress's presses compress during a prefill of their own
            continue
        yield name, instantiate(config, **({"weights": [1.0]} if "budget_file" in config else {}))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("method", nargs="*", help="names of configs/method/; all by default")
    parser.add_argument("--n", type=int, default=32768, help="prompt tokens")
    parser.add_argument("--ratio", type=Fraction, default=Fraction(1, 4), help="fraction of the entries kept")
    parser.add_argument("--heads", type=int, default=32, help="query heads")
    parser.add_argument("--kv-heads", type=int, default=8, help="KV heads")
    parser.add_argument("--d", type=int, default=128, help="head size")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all methods; each one's fastest counts")
    shape = parser.parse_args()
    chosen = dict(methods(["snapkv"])) | dict(methods(shape.method))
    kept = shape.n * shape.ratio.numerator // shape.ratio.denominator
    needs = {name: method.needs(shape.n, kept) for name, method in chosen.items()}
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


if __name__ == "__main__":
    main()
