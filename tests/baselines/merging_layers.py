"""Layers and reference data for the tests of the merging methods."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from selkv.state import LayerState
from selkv.window import window_attention


def build(keys: Tensor, values: Tensor, queries: Tensor | None = None, window: int = 32, **fields: Any) -> LayerState:
    """Layer of n entries from all its prompt queries (H, n, d), its column mass worked out from them."""
    n, d = keys.shape[1:]
    positions, scale = torch.arange(n), d**-0.5
    if queries is None:
        queries = torch.zeros(keys.shape[0], n, d)
    everything = window_attention(queries, keys, positions, scale)
    given = {"queries": queries[:, -window:], "positions": positions, "scale": scale, "column_mass": everything.sum(1)}
    return LayerState(keys=keys, values=values, **{**given, **fields})


def random_layer(
    seed: int = 0, n: int = 96, heads: int = 4, kv_heads: int = 2, d: int = 16, **fields: Any
) -> LayerState:
    """Layer of random entries whose keys drift, so that neighbours resemble each other."""
    draw = torch.Generator().manual_seed(seed)
    keys = torch.randn(kv_heads, n, d, generator=draw)
    keys = keys + 0.8 * keys.roll(1, 1) + torch.randn(kv_heads, 1, d, generator=draw)
    values = torch.randn(kv_heads, n, d, generator=draw) + 0.5 * torch.randn(kv_heads, 1, d, generator=draw)
    queries = torch.randn(heads, n, d, generator=draw)
    return build(fields.pop("keys", keys), fields.pop("values", values), queries, **fields)


def golden(shared: Path, case: str) -> dict[str, Tensor]:
    """Tensors of a reference case, the batch axis of one dropped from those that have it."""
    tensors = load_file(shared / "golden" / "merging" / f"{case}.safetensors")
    return {name: x[0] if x.dim() > 1 and x.shape[0] == 1 else x for name, x in tensors.items()}


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Equal within an absolute tolerance; float16 references are compared in float32."""
    torch.testing.assert_close(actual.float(), expected.float(), rtol=0, atol=tolerance)
