"""Layers for tests, from random tensors or from those of a fixture, with every statistic computed naively."""

from typing import Any

import torch
from torch import Tensor

from selkv.state import LayerState, Needs

EVERYTHING = Needs(window=400, column_mass=True)


def full_attention(queries: Tensor, keys: Tensor, scale: float, causal: bool = True) -> Tensor:
    """The whole n x n softmax attention, (H, n, n), with repeated keys: the slow twin of everything recorded."""
    keys = keys.float().repeat_interleave(len(queries) // len(keys), 0)
    logits = queries.float() @ keys.transpose(1, 2) * scale
    if causal:
        logits = logits.masked_fill(~torch.ones_like(logits, dtype=torch.bool).tril(), float("-inf"))
    return logits.softmax(-1)


def layer_of(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    needs: Needs = EVERYTHING,
    query_heads: bool = False,
    attention: Tensor | None = None,
    first: int = 0,
    **fields: Any,
) -> LayerState:
    """Layer from tensors of all n positions.

    With `query_heads` keys and values are repeated to the query heads, so that each of them keeps its own set, as in
    the original codes. `attention` (H, n, n) replaces the causal one in the column sums; `first` is the first position.
    """
    scale = keys.shape[-1] ** -0.5
    if attention is None and (needs.column_mass or needs.blocks):
        attention = full_attention(queries, keys, scale)
    if query_heads:
        group = len(queries) // len(keys)
        keys, values = keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)
    n = keys.shape[1]
    return LayerState(
        keys=keys,
        values=values,
        queries=queries[:, max(0, n - needs.window) :],
        positions=torch.arange(first, first + n),
        scale=scale,
        column_mass=None if attention is None else attention.sum(1),
        block_attention={b: block_diagonal(attention, b) for b in needs.blocks if attention is not None},
        **fields,
    )


def block_diagonal(attention: Tensor, size: int) -> Tensor:
    """Attention of each query on the entries of its own bucket, (H, n, size)."""
    n = attention.shape[1]
    padded = torch.nn.functional.pad(attention, (0, -n % size))
    column = torch.arange(n)[:, None] // size * size + torch.arange(size)
    return padded.gather(2, column.expand(len(attention), -1, -1))


def random_layer(
    n: int,
    heads: int = 4,
    kv_heads: int = 2,
    d: int = 16,
    seed: int = 0,
    needs: Needs = EVERYTHING,
    dtype: torch.dtype = torch.float32,
    **fields: Any,
) -> LayerState:
    """Layer of random vectors."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys, values = (torch.randn(h, n, d, generator=generator).to(dtype) for h in (heads, kv_heads, kv_heads))
    fields.setdefault("inv_freq", 10000.0 ** -(torch.arange(0, d, 2) / d))
    return layer_of(2 * queries, keys, values, needs, **fields)
