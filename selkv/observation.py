"""Scores from the observation window: what SnapKV and the methods built on it share."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from selkv.budget import apportion, kept_per_head
from selkv.method import Method, PrefillView
from selkv.scores import group_reduce, keep_best, pool, protected
from selkv.state import Kept, LayerState, Needs, keep_all
from selkv.values import Positive, Reduction, Width


def observed(attention: Tensor, recent: int) -> Tensor:
    """Mean attention that the window queries pay to each entry before the last `recent`.

    The mean is over the queries that can see the entry: all of them before the window, fewer for entries of the window
    that the budget does not protect.

    Parameters
    ----------
    attention : Tensor, (H, W, n), float32
    recent : int

    Returns
    -------
    Tensor, (H, n - recent), float32
    """
    window, n = attention.shape[1:]
    seen = torch.arange(n, 0, -1, device=attention.device).clamp(max=window)
    return (attention.sum(1) / seen)[:, : n - recent]


class Prefix(NamedTuple):
    """What competes in one layer at the uniform budget.

    Attributes
    ----------
    recent : int
        Protected last entries of a head.
    budget : int
        Entries of a head that are chosen among the others.
    size : int
        Number of those others.
    """

    recent: int
    budget: int
    size: int


def with_recent(scores: Tensor, recent: int) -> Tensor:
    """Append the protected last entries: (..., n - recent) scores become (..., n), inf at the end."""
    return F.pad(scores, (0, recent), value=float("inf"))


@dataclass(frozen=True)
class ObservationMethod(Method):
    """Base of the methods that score entries by the attention of the last prompt queries.

    Attributes
    ----------
    window : int
        Number w of last queries that score; the last w entries are kept where the budget exceeds w.
    kernel : int
        Odd width of the pooling; 1 for none.
    pooling : str
        ``avg`` or ``max``.
    reduce : str
        From query heads to their KV head: ``mean``, ``max`` or ``sum``.
    pool_first : bool
        Pool each query head before the reduction (kvpress, LAVa) instead of after it (KVCache-Factory, RocketKV); the
        same for average pooling with mean or sum.
    """

    window: Positive = 32
    kernel: Width = 5
    pooling: Literal["avg", "max"] = "avg"
    reduce: Reduction = "mean"
    pool_first: bool = False

    def needs(self, n: int, budget: int) -> Needs:
        """The last `window` queries."""
        return Needs(window=self.window)

    def recent(self, n: int, kept: int) -> int:
        """Number of last entries that are kept unscored when `kept` of n stay in a head."""
        return protected(kept, max(1, min(self.window, n - 1)))

    def prefix(self, layer: LayerState, ratio: Fraction) -> Prefix:
        """Split of a layer's uniform budget."""
        kept = kept_per_head(layer.n, ratio)
        recent = self.recent(layer.n, kept)
        return Prefix(recent, kept - recent, layer.n - recent)

    def allot(
        self, prefill: PrefillView, ratio: Fraction, weights: Sequence[float], whole_heads: bool = True
    ) -> list[int]:
        """Budgets whose parts before the recent window follow the weights of the layers; the sum is exact.

        Parameters
        ----------
        prefill : PrefillView
        ratio : Fraction
        weights : sequence of float
            One a layer, per KV head.
        whole_heads : bool
            Give every head of a layer the same number; False shares single entries (ragged heads).
        """
        layers = prefill.layers
        heads, parts = [x.kv_heads for x in layers], [self.prefix(x, ratio) for x in layers]
        unit = gcd(*heads) if whole_heads else 1
        shares = apportion(
            [w * h for w, h in zip(weights, heads, strict=True)],
            sum(h * p.budget for h, p in zip(heads, parts, strict=True)) // unit,
            [h * p.size // unit for h, p in zip(heads, parts, strict=True)],
        )
        return [h * p.recent + unit * share for h, p, share in zip(heads, parts, shares, strict=True)]

    def scores(self, layer: LayerState, recent: int) -> Tensor:
        """Pooled scores of the entries before the last `recent`, (Hkv, n - recent), float32."""
        attention = layer.window_attention(min(self.window, layer.n - 1))
        scores = observed(attention, recent)
        if self.pool_first:
            return group_reduce(pool(scores, self.kernel, self.pooling), layer.kv_heads, self.reduce)
        return pool(group_reduce(scores, layer.kv_heads, self.reduce), self.kernel, self.pooling)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Best scored entries of each head, and the protected last ones."""
        if budget >= layer.kv_heads * layer.n:
            return keep_all(layer)
        recent = self.recent(layer.n, budget // layer.kv_heads)
        return keep_best(layer, with_recent(self.scores(layer, recent), recent), budget)
