"""No tensor of n x n anywhere: prefill and compression need memory in proportion to the prompt."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from selkv.compression import Job, compressed_layers
from selkv.method import Method
from selkv.prefill import prefill
from selkv.selkv import SelKV
from selkv.state import Needs
from tests.models import build, tokens

SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {}),
    "sliding": ("mistral", {"sliding_window": 256}),
    "softcap": ("gemma2", {"head_dim": 8, "sliding_window": 100_000}),
    "sliding_softcap": ("gemma2", {"head_dim": 8, "sliding_window": 256}),
}
# Logits a block may hold: with the real limit of 2**24 a small n would fit in one block, square or not.
BLOCK = 2**18


class Largest(TorchDispatchMode):
    """Records the largest storage that any operation returns, in elements."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return out


def largest(name: str, n: int, chunk: int | None, method: Method, needs: Needs) -> int:
    """Elements of the largest tensor of a prefill and of one compression."""
    family, changes = MODELS[name]
    model, ids = build(family, max_position_embeddings=65536, **{**SMALL, **changes}), tokens(n)
    with torch.no_grad(), Largest() as seen:
        state = prefill(model, ids, needs.union(method.needs(n, n // 4)), chunk=chunk)
        for _ in compressed_layers([Job(method, Fraction(1, 4))], state):
            pass
    return seen.elements


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("chunk", [None, 500])
def test_no_tensor_grows_with_the_square_of_the_prompt(name: str, chunk: int | None, monkeypatch: Any) -> None:
    monkeypatch.setattr("selkv.attention.BLOCK_LOGITS", BLOCK)
    method, needs = SelKV(window=8), Needs(window=8)
    short, long = (largest(name, n, chunk, method, needs) for n in (1024, 4096))
    assert long <= 4.2 * max(short, BLOCK // 4), f"{short} elements became {long}"
    assert long < 4096 * 4096 // 8


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        (SelKV(window=8, routing="literal"), Needs(window=8)),
        (SelKV(window=8, routing="coattention"), Needs(window=8)),
        (SelKV(window=8, selection_scope="per_head", empty_bucket="nearest"), Needs(window=8, column_mass=True)),
    ],
    ids=["literal", "coattention", "column_mass"],
)
def test_what_methods_record_is_linear_too(method: SelKV, needs: Needs, monkeypatch: Any) -> None:
    monkeypatch.setattr("selkv.attention.BLOCK_LOGITS", BLOCK)
    monkeypatch.setattr("selkv.recording.BLOCK_LOGITS", BLOCK)
    short, long = (largest("sliding_softcap", n, 300, method, needs) for n in (1024, 4096))
    assert long <= 4.2 * max(short, BLOCK // 4)
    assert long < 4096 * 4096 // 8


def test_the_tracker_sees_a_square() -> None:
    with Largest() as seen:
        torch.ones(1, 64, 4) @ torch.ones(1, 4, 64)
    assert seen.elements == 64 * 64


PEAK = """
import json, resource, sys
import torch
from selkv.prefill import prefill
from selkv.state import Needs
from tests.models import build, tokens

torch.set_num_threads(1)
family, changes, chunk = json.loads(sys.argv[1])
model = build(family, max_position_embeddings=65536, **changes)
for n in (256, 4096, 32768):
    state = prefill(model, tokens(n), Needs(window=8), chunk=chunk)
    kv = sum(x.nbytes for layer in state.layers for x in (layer.keys, layer.values))
    del state
    print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, kv, flush=True)
"""


# one head, and one layer without a window, keep 32k tokens affordable
ONE_HEAD = {**SMALL, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
LAYERS = {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
LONG: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "plain": ("llama", {}, None),
    "sliding_softcap": ("gemma2", {"sliding_window": 256, **LAYERS}, None),
    "chunked": ("mistral", {"sliding_window": 256}, 2048),
}


@pytest.mark.parametrize("name", LONG)
def test_peak_memory_of_the_process_is_linear(name: str) -> None:
    family, changes, chunk = LONG[name]
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps([family, {**ONE_HEAD, **changes}, chunk])],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    start, *rest = (tuple(map(int, line.split())) for line in ran.stdout.splitlines())
    short, long = (peak - start[1] - kv for _, peak, kv in rest)  # 4k and 32k tokens
    # eight times the prompt; a square would make it 64 times, and 32768**2 alone is 4 GiB
    assert long <= 10 * max(short, 32 * 2**20), f"{short} bytes became {long}"
