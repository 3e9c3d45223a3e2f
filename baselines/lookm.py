"""LOOK-M (arXiv 2406.18139): each evicted entry is merged, key and value, into the survivor with the nearest key."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from baselines.merging import Absorbed, Filter, ScoredMerging, passes
from selkv.merge import gate_weight, nearest_kept, weighted_merge
from selkv.state import LayerState, take
from selkv.values import Count


@dataclass(frozen=True)
class LookM(ScoredMerging):
    """LOOK-M without its priority for text, which has no meaning without images.

    Attributes
    ----------
    merge : str
        ``pivotal``: x_i' = (x_i + sum_j (x_j + x_i) / 2) / (1 + N_i), the recommended one; ``averaged``: the mean;
        ``weighted``: (x_i + sum_j s_j x_j) / (1 + N_i) with cosines s_j, as released: not convex.
    filter : str
        Which evicted entries take part: ``none``, ``per_head`` or ``official`` (see `baselines.merging.passes`). The
        released code filters ``averaged`` and ``weighted`` by ``official``.
    scope : str
        ``global``, as released, or ``window``: survivors at most `reach` entries away; without one it is dropped.
    reach : int
    gate_keys : bool
        Whether the gate also weighs keys; false is an ablation in which a closed gate still moves keys.
    """

    merge: Literal["pivotal", "averaged", "weighted"] = "pivotal"
    filter: Filter = "none"
    scope: Literal["global", "window"] = "global"
    reach: Count = 32
    gate_keys: bool = True

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Nearest key, then one of three means."""
        target, similarity = nearest_kept(layer.keys, index, reach=self.reach if self.scope == "window" else None)
        near = similarity.isfinite()
        similarity = similarity.where(near, 0.0)
        routed = passes(similarity, index, self.filter) & near
        member = routed.float()
        gated = member * gate_weight(layer.values, target, self.gate)
        return Absorbed(
            keys=mean_into(self.merge, layer.keys, target, gated if self.gate_keys else member, similarity),
            values=mean_into(self.merge, layer.values, target, gated, similarity),
            target=target,
            weight=gated,
            routed=routed,
        )


def mean_into(how: str, x: Tensor, target: Tensor, member: Tensor, similarity: Tensor) -> Tensor:
    """LOOK-M's three merges of x (Hkv, n, d) with memberships (Hkv, n); also kvpress's and KVCache-Factory's names."""
    own = torch.ones_like(member)
    if how == "pivotal":
        return weighted_merge(x, own, target, member, sources=(x.float() + take(x, target).float()) / 2)
    weight = member * similarity if how == "weighted" else member
    return weighted_merge(x, own, target, weight, mass=member)
