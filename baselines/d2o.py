"""D2O (arXiv 2406.13035): evicted entries merge into the nearest survivor if they are similar enough, else they go."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import e
from typing import Literal

import torch
from torch import Tensor

from baselines.lookm import mean_into
from baselines.merging import Absorbed, Filter, passes, threshold
from baselines.native_merging import Live, ScoredNative
from selkv.budget import apportion, kept_per_head
from selkv.merge import gate_weight, nearest_kept, weighted_merge
from selkv.method import PrefillView
from selkv.state import LayerState, Needs
from selkv.values import Share


@dataclass(frozen=True)
class D2O(ScoredNative):
    """D2O: H2O's selection, a similarity threshold, then a convex merge of keys and values.

    Attributes
    ----------
    weights : str
        ``paper``: w_j = exp(s_j) / (e + sum exp(s)) with cosines s_j (Eqs. 11-12); ``code``: (x_i + sum s_j x_j) /
        (1 + N_i), the release, not convex.
    filter : str
        ``per_head``: s_j at least the head's mean; ``official``: see `baselines.merging.passes`; ``none``.
    momentum : float
        Weight of the newest similarity in the threshold while decoding natively (0.7; the release uses 0.5).
    allocation : str
        ``uniform``, or ``variance``: more entries for layers whose attention is flat, the same total.
    gate_keys : bool
        Whether the gate also weighs keys.
    """

    weights: Literal["paper", "code"] = "paper"
    filter: Filter = "per_head"
    momentum: Share = 0.7
    allocation: Literal["uniform", "variance"] = "uniform"
    gate_keys: bool = True

    def needs(self, n: int, budget: int) -> Needs:
        """Attention of all queries also where it only shares budgets."""
        needs = super().needs(n, budget)
        return needs._replace(column_mass=needs.column_mass or self.allocation == "variance")

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Entries per layer by the flatness of its attention (``variance``), at least one a head."""
        layers = prefill.layers
        if self.allocation == "uniform" or ratio == 1:
            return super().budgets(prefill, ratio)
        shares = layer_shares(layers, ratio)
        total = sum(kept_per_head(layer.n, ratio) for layer in layers) - len(layers)
        extra = apportion(shares, total, [layer.n - 1 for layer in layers])
        return [layer.kv_heads * (1 + x) for layer, x in zip(layers, extra, strict=True)]

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Nearest key, threshold, convex merge."""
        return self._merge(layer.keys, layer.values, index, None)

    def threshold(self, layer: LayerState, index: Tensor) -> Tensor:
        """Similarity that a merge needed after prefill, (Hkv,)."""
        if index.shape[1] == layer.n:
            return torch.zeros(layer.kv_heads, device=index.device)
        return threshold(nearest_kept(layer.keys, index)[1], index, self.filter)

    def remember(self, layer: LayerState, index: Tensor) -> Tensor:
        """The threshold."""
        return self.threshold(layer, index)

    def absorb_one(self, live: Live, index: Tensor) -> tuple[Absorbed, Tensor]:
        """Move the threshold towards the new similarity, then merge or drop."""
        keys, values = live.kept.keys, live.kept.values
        newest = threshold(nearest_kept(keys, index)[1], index, self.filter)
        least = (1 - self.momentum) * live.memory + self.momentum * newest
        return self._merge(keys, values, index, least), least

    def _merge(self, keys: Tensor, values: Tensor, index: Tensor, least: Tensor | None) -> Absorbed:
        target, similarity = nearest_kept(keys, index)
        routed = passes(similarity, index, self.filter, least)
        member = routed.float()
        gated = member * gate_weight(values, target, self.gate)

        def merged(x: Tensor, share: Tensor) -> Tensor:
            if self.weights == "code":
                return mean_into("weighted", x, target, share, similarity)
            return weighted_merge(x, torch.full_like(share, e), target, share * similarity.exp())

        return Absorbed(merged(keys, gated if self.gate_keys else member), merged(values, gated), target, gated, routed)


def layer_flatness(column_mass: Tensor) -> Tensor:
    """D2O's statistic of each layer: variance of the attention received, scaled over the heads; small is flat.

    Parameters
    ----------
    column_mass : Tensor, (L, H, n)
        Attention received by each key from all prompt queries.

    Returns
    -------
    Tensor, (L,)
        Unbiased variance over n, min-max normalised over the heads of the layer, mean over heads.
    """
    variance = column_mass.var(-1)
    low, high = variance.aminmax(dim=-1, keepdim=True)
    return ((variance - low) / (high - low + 1e-6)).mean(-1)


def layer_shares(layers: Sequence[LayerState], ratio: Fraction) -> list[float]:
    """Real number of entries per layer: n * clamp(L * ratio * softmax(-flatness), 0.01, 1)."""
    masses = [layer.column_mass for layer in layers]
    flatness = torch.cat([layer_flatness(mass[None]) for mass in masses if mass is not None])
    shares = (len(layers) * float(ratio) * (-flatness).softmax(0)).clamp(0.01, 1)
    return [layer.n * float(share) for layer, share in zip(layers, shares, strict=True)]
