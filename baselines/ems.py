"""EMS-style merging (arXiv 2412.08521): global and local scores, and entries too unlike to merge are dropped."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from baselines.merging import Absorbed, Merging, heavy, protected, readers, received, recent_entries, window_mass
from selkv.merge import gate_weight, weighted_merge
from selkv.scores import mask_of, pool, top_mask
from selkv.state import LayerState, take
from selkv.values import Amount, Count, Portion, Share, Width


@dataclass(frozen=True)
class EMS(Merging):
    """EMS from its abstract and reviews: neither code nor full text was found, so the details are ours.

    Centres are the recent entries and those with the best score, max of average global attention (scaled to the mean of
    the local one) and average local attention. The next best entries are candidates to merge; the rest is dropped.

    Attributes
    ----------
    share : float
        Number of candidates, as a multiple of the budget.
    threshold : float
        A candidate goes to the centre with the largest cos(keys) * cos(values), both clamped at 0, unless that is below
        the threshold (the zero class).
    kernel : int
        Average pooling of the score, odd; 1 for none.
    gate_keys : bool
        Whether the gate also weighs keys.
    """

    label: ClassVar[str] = "style, details unconfirmed"

    sinks: Count = 0
    recent: Portion | None = 32
    share: Amount = 1.0
    threshold: Share = 0.5
    kernel: Width = 1
    gate_keys: bool = True

    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Recent entries and the best scores."""
        sinks, recent = protected(m, self.sinks, recent_entries(self.recent, m))
        return heavy(self._score(layer), m, sinks, recent)

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Score-weighted means: of values, and of the directions of keys, whose lengths stay."""
        n, m = layer.n, index.shape[1]
        score = self._score(layer)
        outside = ~mask_of(index, n)
        candidates = top_mask(score.masked_fill(~outside, -1.0), min(int(self.share * m), n - m))
        target, likeness = likest(layer.keys, layer.values, index)
        routed = candidates & (likeness >= self.threshold)
        gated = routed * gate_weight(layer.values, target, self.gate)
        values = weighted_merge(layer.values, score, target, gated * score)
        unit = F.normalize(layer.keys.float(), dim=-1, eps=1e-30)
        share = gated if self.gate_keys else routed.float()
        turned = weighted_merge(unit, score, target, share * score)
        length = layer.keys.float().norm(dim=-1, keepdim=True)
        keys = torch.where(turned == unit, layer.keys.float(), F.normalize(turned, dim=-1, eps=1e-30) * length)
        return Absorbed(keys, values, target, gated, routed)

    def _score(self, layer: LayerState) -> Tensor:
        local = window_mass(layer, self.window) / self.window
        everywhere = received(layer, self.score_queries, self.window)
        everywhere = everywhere / readers(layer, self.score_queries, self.window)
        scale = local.mean(1, keepdim=True) / everywhere.mean(1, keepdim=True)
        return pool(torch.maximum(everywhere * scale, local), self.kernel)


def likest(keys: Tensor, values: Tensor, index: Tensor, block: int = 1024) -> tuple[Tensor, Tensor]:
    """Survivor whose key and value both resemble an entry's most.

    Parameters
    ----------
    keys, values : Tensor, (Hkv, n, d)
    index : Tensor, (Hkv, m)
        Survivors, ascending.
    block : int
        Entries compared at once.

    Returns
    -------
    target : Tensor, (Hkv, n), int64
        Ties: lower index.
    likeness : Tensor, (Hkv, n), float32
        max(cos(keys), 0) * max(cos(values), 0): two negatives are not alike.
    """
    pair = [F.normalize(x.float(), dim=-1, eps=1e-30) for x in (keys, values)]
    centres = [take(unit, index).transpose(1, 2) for unit in pair]
    best = []
    for parts in zip(*(unit.split(block, 1) for unit in pair), strict=True):
        key, value = ((part @ centre).clamp(0, 1) for part, centre in zip(parts, centres, strict=True))
        best.append((key * value).max(-1))
    return take(index, torch.cat([b.indices for b in best], 1)), torch.cat([b.values for b in best], 1)
