"""What a method sees of one layer (`LayerState`), what it asks for (`Needs`), and what it returns (`Kept`).

No batch dimension (one prompt, one layer), no model, no module. Tensors are never changed in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from selkv.window import window_attention


class Needs(NamedTuple):
    """What prefill must record for a method; a grid records the union.

    Attributes
    ----------
    window : int
        Number of last prompt queries whose attention is wanted (the observation window).
    column_mass : bool
        Attention that each key received from all prompt queries (H2O's score); costs a second pass over the logits.
    blocks : frozenset of int
        Bucket sizes B whose block-diagonal attention is wanted (SelKV's literal routing, Eq. 3).
    rotation : bool
        Whether keys will be moved to other positions: prefill refuses models whose rotary frequencies change.
    """

    window: int = 32
    column_mass: bool = False
    blocks: frozenset[int] = frozenset()
    rotation: bool = False

    def union(self, other: "Needs") -> "Needs":
        """Needs that serve both."""
        return Needs(
            max(self.window, other.window),
            self.column_mass or other.column_mass,
            self.blocks | other.blocks,
            self.rotation or other.rotation,
        )


@dataclass(frozen=True, eq=False)
class LayerState:
    """One layer after prefill.

    Attributes
    ----------
    keys, values : Tensor, (Hkv, n, d)
        Cache entries, keys after RoPE. On a sliding-window layer n is at most the window.
    queries : Tensor, (H, W, d)
        Queries of the last W prompt positions after RoPE; query head h reads KV head h // (H // Hkv).
    positions : Tensor, (n,), int64
        Prompt position of each entry, ascending; the last one is that of the last query.
    scale : float
        Factor on the logits.
    softcap : float or None
        Logits become softcap * tanh(logits / softcap) (Gemma-2).
    sliding_window : int or None
        Queries see the last `sliding_window` positions only, themselves included.
    inv_freq : Tensor or None, (r/2,)
        Rotary inverse frequencies in radians a position; None where the model has none or they depend on the length.
    layer, layers : int
        Index of this layer and their number.
    column_mass : Tensor or None, (H, n), float32
        Attention received by each key, summed over all prompt queries.
    block_attention : dict of int to Tensor, (H, n, B), float32
        By bucket size B: row j holds the attention of query j on the entries of its own bucket: column t is entry
        (j // B) * B + t (0 where that entry is later than j or missing).
    hidden_keys : Tensor or None, (Hkv, e, d)
        Keys just older than a sliding window, which the earlier window queries still saw: they take part in the
        softmax's denominator and can never be kept.
    leader : LayerState or None
        Another layer whose selection this one reuses (ChunkKV's index reuse); None for its own.
    memo : dict or None
        Where window attention is remembered; see `remembering`.
    """

    keys: Tensor
    values: Tensor
    queries: Tensor
    positions: Tensor
    scale: float
    softcap: float | None = None
    sliding_window: int | None = None
    inv_freq: Tensor | None = None
    layer: int = 0
    layers: int = 1
    column_mass: Tensor | None = None
    block_attention: dict[int, Tensor] = field(default_factory=dict)
    hidden_keys: Tensor | None = None
    leader: "LayerState | None" = None
    memo: dict[int, Tensor] | None = field(default=None, repr=False)

    @property
    def kv_heads(self) -> int:
        """Number of KV heads Hkv."""
        return self.keys.shape[0]

    @property
    def n(self) -> int:
        """Number of entries before compression."""
        return self.keys.shape[1]

    def window_attention(self, window: int) -> Tensor:
        """Attention of the last `window` prompt queries: what the model's own eager attention gives.

        Parameters
        ----------
        window : int
            Number of queries; the smaller of this and the number of recorded ones is used.

        Returns
        -------
        Tensor, (H, min(window, W), n), float32
            Softmax over all keys that a query sees.
        """
        if self.memo is None:
            return self._window_attention(window)
        if window not in self.memo:
            self.memo[window] = self._window_attention(window)
        return self.memo[window]

    def _window_attention(self, window: int) -> Tensor:
        return window_attention(
            self.queries[:, -window:],
            self.keys,
            positions=self.positions,
            scale=self.scale,
            softcap=self.softcap,
            sliding_window=self.sliding_window,
            hidden_keys=self.hidden_keys,
        )

    def remembering(self) -> "LayerState":
        """The same layer, which computes window attention once and frees it with the returned object."""
        return replace(self, memo={})


class Kept(NamedTuple):
    """What a method keeps of one layer.

    Attributes
    ----------
    keys, values : Tensor, (Hkv, m, d)
        Entries in the layer's dtype, ascending by position.
    bias : Tensor, (Hkv, m), float32
        Added to the attention logits after soft-capping; -inf pads heads that keep fewer than m (padding comes last).
    positions : Tensor, (Hkv, m), int64
        Prompt position where each entry came from; -1 on padding.
    counters : mapping of str to float
        What a run reports (routed, dropped, mean gate, max log R, ...).
    """

    keys: Tensor
    values: Tensor
    bias: Tensor
    positions: Tensor
    counters: Mapping[str, float] = MappingProxyType({})

    @property
    def entries(self) -> int:
        """Number of true entries, padding not counted."""
        return int((self.positions >= 0).sum())

    def described(self) -> "Kept":
        """The same with empty keys and values: a view of no entries would hold the memory of all."""
        empty = self.keys.new_empty(len(self.keys), 0, self.keys.shape[2])
        return self._replace(keys=empty, values=torch.empty_like(empty))


def keep(layer: LayerState, index: Tensor, lengths: Tensor | None = None) -> Kept:
    """Gather entries of a layer; merging methods replace fields of the result (``_replace``).

    Parameters
    ----------
    layer : LayerState
    index : Tensor, (m,) or (Hkv, m), int64
        Entry indices (not prompt positions), ascending in each head; a one-dimensional index serves all heads.
    lengths : Tensor, (Hkv,), int64, optional
        Number of true entries of each head where heads differ; the rest of `index` is padding (any valid index).
    """
    index = index.expand(layer.kv_heads, -1)
    padding = torch.zeros_like(index, dtype=torch.bool)
    if lengths is not None:
        padding = torch.arange(index.shape[1], device=index.device) >= lengths[:, None]
    return Kept(
        keys=take(layer.keys, index),
        values=take(layer.values, index),
        bias=torch.zeros(index.shape, device=index.device).masked_fill(padding, float("-inf")),
        positions=layer.positions[index].masked_fill(padding, -1),
    )


def keep_all(layer: LayerState) -> Kept:
    """Keep the whole layer: ratio 1, and every budget that the prompt does not fill."""
    return keep(layer, torch.arange(layer.n, device=layer.keys.device))


def take(x: Tensor, index: Tensor) -> Tensor:
    """Gather along the entry axis: x (Hkv, n[, d]) with index (Hkv, m) gives (Hkv, m[, d])."""
    heads = torch.arange(len(index), device=index.device)[:, None]
    return x[heads, index]
