"""CaM (ICML 2024): an evicted value is added, in shares and with a probability, to the values that follow it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from baselines.merging import Absorbed, received
from baselines.native_merging import Live, ScoredNative
from selkv.merge import gate_between, scatter_sum
from selkv.scores import mask_of
from selkv.state import LayerState, take
from selkv.values import Positive, Seed


@dataclass(frozen=True)
class CaM(ScoredNative):
    """CaM: v_k += M_j v_j / b for the next b survivors k, M_j ~ Bernoulli(attention of j / mean attention of those).

    Sums of attention-weighted values are kept in expectation; keys stay. Additive: many evicted entries inflate values.

    Attributes
    ----------
    merge_budget : int
        b, 32; fewer where fewer survivors follow.
    stochastic : bool
        False adds the expectation, M_j replaced by its probability: reproducible, not the published operator.
    seed : int
        Of the method's own generator; each layer and generated token draws from a stream of its own.
    selection : str
        ``h2o`` for one shot: after ``streaming``, as published, all evicted entries would add to the same few.
    """

    merge_budget: Positive = 32
    stochastic: bool = False
    seed: Seed = 0

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """All evicted values at once, from raw values."""
        mass = received(layer, self.score_queries, self.window)
        return self._merge(layer.keys, layer.values, mass, index, stream=layer.layer)

    def absorb_one(self, live: Live, index: Tensor) -> tuple[Absorbed, Tensor]:
        """The value that leaves."""
        return self._merge(live.kept.keys, live.kept.values, live.mass, index, stream=live.last), live.memory

    def draw(self, probability: Tensor, stream: int) -> Tensor:
        """Bernoulli samples, or the probability itself; same shape."""
        if not self.stochastic:
            return probability
        generator = torch.Generator().manual_seed((self.seed << 32) + stream)
        return torch.rand(probability.shape, generator=generator).to(probability.device).lt(probability).float()

    def _merge(self, keys: Tensor, values: Tensor, mass: Tensor, index: Tensor, stream: int) -> Absorbed:
        target, valid = followers(index, values.shape[1], self.merge_budget)
        portion = self.draw(merge_probability(mass, target, valid), stream) / valid.sum(1).clamp(min=1)
        return add_values(keys, values, target, portion[:, None] * valid, valid, self.gate)


def followers(index: Tensor, n: int, count: int) -> tuple[Tensor, Tensor]:
    """The next `count` survivors after each evicted entry.

    Returns
    -------
    target : Tensor, (Hkv, count, n), int64
        Index of the t-th of them.
    valid : Tensor, (Hkv, count, n), bool
        False for survivors and where there are fewer.
    """
    kept = mask_of(index, n)
    slot = kept.cumsum(-1)[:, None] + torch.arange(count, device=index.device)[:, None]
    valid = (slot < index.shape[1]) & ~kept[:, None]
    target = index.gather(1, slot.clamp(max=index.shape[1] - 1).flatten(1)).view_as(slot)
    return target, valid


def merge_probability(mass: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """min(attention of an entry / mean attention of its targets, 1), 0 where both are 0; (Hkv, n)."""
    reference = (mass.gather(1, target.flatten(1)).view_as(target) * valid).sum(1) / valid.sum(1).clamp(min=1)
    return (mass / reference).nan_to_num(nan=0.0, posinf=1.0).clamp(0, 1)


def add_values(
    keys: Tensor, values: Tensor, target: Tensor, weight: Tensor, valid: Tensor, gate: str | float = "none"
) -> Absorbed:
    """Add weight_jt * g_jt * v_j to the t-th target of each entry j, all from raw values.

    Parameters
    ----------
    keys, values : Tensor, (Hkv, n, d)
    target : Tensor, (Hkv, t, n), int64
    weight : Tensor, (Hkv, t, n), float32
    valid : Tensor, (Hkv, t, n), bool
    gate : str or float
        As in `selkv.merge.gate_weight`, for each pair.
    """
    merged, shares = values.float(), []
    for goal, portion in zip(target.unbind(1), weight.unbind(1), strict=True):
        share = portion * gate_between(values, take(values, goal), gate) if gate != "none" else portion
        merged = merged + scatter_sum(share, goal, values)
        shares.append(share)
    return Absorbed(keys, merged, target.flatten(1), torch.cat(shares, 1), valid.flatten(1))
