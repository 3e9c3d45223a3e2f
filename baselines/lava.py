"""LAVa: scores weighted by value size, compared across the heads of a layer; entropy decides layer budgets."""

from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Literal

import torch
from torch import Tensor

from selkv.method import PrefillView
from selkv.observation import ObservationMethod, with_recent
from selkv.scores import indices, protect, top_mask
from selkv.state import Kept, LayerState, keep, keep_all
from selkv.values import Positive, Reduction, Share, Width


@dataclass(frozen=True)
class LAVa(ObservationMethod):
    """LAVa (Shen et al. 2025, arXiv 2509.09754; MGDDestiny/Lava 71d3cc8).

    A score is the pooled mean window attention times the largest L1 value norm of the head, the largest of the group.
    Layers share the budget by the entropy of their scores, heads by one ranking over the layer, so heads are ragged.

    Attributes
    ----------
    alpha : float
        Share of a layer's mean part that every head gets before the common ranking; 0.2 in the authors' code, 0 in the
        paper.
    capacity : int or None
        The authors' own rounding at this capacity (entries a head, window included), with which totals are approximate;
        None: exact totals at the run's ratio.
    window, kernel, pooling, reduce, pool_first
        See `ObservationMethod`.
    """

    kernel: Width = 7
    pooling: Literal["avg", "max"] = "max"
    reduce: Reduction = "max"
    pool_first: bool = True
    alpha: Share = 0.2
    capacity: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "exact", self.capacity is None)  # hides the class's own

    def scores(self, layer: LayerState, recent: int) -> Tensor:
        """Scores that are comparable between the heads of a layer, (Hkv, n - recent)."""
        norms = layer.values[:, : layer.n - recent].float().norm(1, dim=-1)
        return super().scores(layer, recent) * norms.amax(1, keepdim=True)

    def entropy(self, layer: LayerState, recent: int) -> float:
        """Entropy of the scores of a layer over all heads, 1 where they are uniform."""
        share = self.scores(layer, recent).flatten().double()
        share = share / share.sum().clamp(min=torch.finfo(torch.float64).tiny)
        return float(torch.special.entr(share).sum()) / max(log(len(share)), 1e-9)

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Parts before the window in proportion to the entropies of the layers."""
        layers = prefill.layers
        if self.capacity is not None:
            entropies = [self.entropy(x, self.window) for x in layers]
            total = len(layers) * (self.capacity - self.window) / sum(entropies)
            return [x.kv_heads * (self.window + int(e * total)) for x, e in zip(layers, entropies, strict=True)]
        weights = []
        for layer in layers:
            part = self.prefix(layer, ratio)
            choice_left = 0 < part.budget < part.size
            weights.append(part.budget * (self.entropy(layer, part.recent) if choice_left else 1.0))
        return self.allot(prefill, ratio, weights, whole_heads=False)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Best scores of the layer, whichever head they are in."""
        if budget >= layer.kv_heads * layer.n:
            return keep_all(layer)
        if self.capacity is not None:
            return self._authors(layer, budget)
        recent = self.recent(layer.n, budget // layer.kv_heads)
        scores = self.scores(layer, recent)
        mean = Fraction(budget, layer.kv_heads) - recent
        floor = int(Fraction(str(self.alpha)) * mean)
        ranked = with_recent(protect(scores, top_mask(scores, floor)), recent)
        return keep(layer, *indices(top_mask(ranked.flatten(), budget).view_as(ranked)))

    def _authors(self, layer: LayerState, budget: int) -> Kept:
        """Head sizes rounded half to even, with a floor that is the same in all layers."""
        assert self.capacity is not None
        scores = self.scores(layer, self.window)
        chosen = top_mask(scores.flatten(), budget - layer.kv_heads * self.window).view_as(scores)
        counts = ((1 - self.alpha) * chosen.sum(1).double() + int(self.alpha * self.capacity)).round().long()
        mask = top_mask(scores, counts)
        return keep(layer, *indices(torch.nn.functional.pad(mask, (0, self.window), value=True)))
