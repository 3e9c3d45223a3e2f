"""WeightedKV (arXiv 2503.01330): keys are dropped, values are averaged into the right neighbour by attention."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from baselines.merging import Absorbed, heavy, protected, readers, received, recent_entries
from baselines.native_merging import Live, NativeMerging
from selkv.merge import gate_between, gate_weight, in_turns, weighted_merge
from selkv.routing import right_neighbour
from selkv.scores import mask_of
from selkv.state import LayerState, take

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class WeightedKV(NativeMerging):
    """WeightedKV: entries with the lowest average attention go, one after the other, into what is then to their right.

    Attributes
    ----------
    recent : float
        Here sinks and recent entries together: below 1 a share of the budget, else a number.
    order : str
        ``sequential``: Algorithm 1, lowest average first into the neighbour that is still there; the neighbour's own
        average does not grow. ``group``: each run of evicted entries at once, x_i' = sum abar v / sum abar.
    """

    order: Literal["sequential", "group"] = "sequential"

    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Sinks, the highest average attention, the recent."""
        return self._stay(self._average(layer), m)

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Attention-weighted means of values, to the right."""
        return self._merge(layer.keys, layer.values, self._average(layer), index)

    def stay(self, live: Live) -> Tensor:
        """All but the lowest average attention."""
        return self._stay(live.mass / live.reads, live.capacity)

    def absorb_one(self, live: Live, index: Tensor) -> tuple[Absorbed, Tensor]:
        """Into the right neighbour."""
        return self._merge(live.kept.keys, live.kept.values, live.mass / live.reads, index), live.memory

    def _average(self, layer: LayerState) -> Tensor:
        mass = received(layer, self.score_queries, self.window)
        return mass / readers(layer, self.score_queries, self.window)

    def _stay(self, average: Tensor, m: int) -> Tensor:
        # the newest entry has no right neighbour: it stays
        sinks, recent = protected(m, self.sinks, max(recent_entries(self.recent, m) - self.sinks, 1))
        return heavy(average, m, sinks, recent)

    def _merge(self, keys: Tensor, values: Tensor, average: Tensor, index: Tensor) -> Absorbed:
        kept = mask_of(index, keys.shape[1])
        if self.order == "sequential":
            merged, target, gate, routed = merge_right(values, average, kept, self.gate)
            return Absorbed(keys, merged, target, gate, routed)
        target, found = right_neighbour(kept)
        routed = found & ~kept
        gate = gate_weight(values, target, self.gate) * routed
        return Absorbed(keys, weighted_merge(values, average, target, gate * average), target, gate, routed)


class Schedule(NamedTuple):
    """Order of the merges: `target` (Hkv, n), the entry itself where it stays; `turn` (Hkv, n), 0 where it stays.

    Merges of the same turn touch different entries, and each comes after all that it depends on.
    """

    target: Tensor
    turn: Tensor


def schedule(average: Tensor, kept: Tensor) -> Schedule:
    """Which entry each evicted one goes into, and when.

    Lowest average first into the next entry that is still there, so an entry goes to the first one on its right that
    outlives it. O(n log n): a sort, then one pass with a stack.

    Parameters
    ----------
    average : Tensor, (Hkv, n)
    kept : Tensor, (Hkv, n), bool
    """
    n = average.shape[1]
    life = average.sort(dim=-1, stable=True).indices.argsort(-1)  # ties: lower index first
    life = life.masked_fill(kept, n)
    target, turn = [], []
    for head in life.tolist():
        into, when = list(range(n)), [0] * n
        ready = [0] * n  # turn after which an entry has received all that it gets
        waiting: list[int] = []
        for j, lasts in enumerate(head):
            busy = 0
            while waiting and head[waiting[-1]] < lasts:
                i = waiting.pop()
                busy = max(ready[i], busy) + 1
                into[i], when[i] = j, busy
            ready[j] = busy
            if lasts < n:
                waiting.append(j)
        target.append(into)
        turn.append(when)
    return Schedule(*(torch.from_numpy(np.array(x)).to(average.device) for x in (target, turn)))


def merge_right(
    values: Tensor, average: Tensor, kept: Tensor, gate: str | float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Algorithm 1 on a fixed evicted set: v_i' = (g abar_j v_j + abar_i v_i) / (g abar_j + abar_i), merge by merge.

    The gate compares the raw value of the evicted entry with what its neighbour holds at that moment.

    Parameters
    ----------
    values : Tensor, (Hkv, n, d)
    average : Tensor, (Hkv, n), float32
        Average attention; a merge does not raise the neighbour's.
    kept : Tensor, (Hkv, n), bool
    gate : str or float
        As in `selkv.merge.gate_weight`.

    Returns
    -------
    merged : Tensor, (Hkv, n, d), float32
    survivor : Tensor, (Hkv, n), int64
        Where each entry ends up, through all merges.
    weight : Tensor, (Hkv, n), float32
        Product of the gates on the way; 0 for survivors.
    routed : Tensor, (Hkv, n), bool
        Entries that have a survivor to their right.
    """
    target, turn = schedule(average, kept)
    pairs = in_turns(target, turn)
    raw = values.reshape(-1, values.shape[-1])
    merged, weight = raw.float().clone(), average.float().flatten()
    gates = torch.ones_like(weight)
    for i, j in pairs:
        neighbour = merged.index_select(0, j)
        share = weight.index_select(0, i)
        if gate != "none":
            g = gate_between(raw.index_select(0, i), neighbour, gate)
            gates.index_copy_(0, i, g)
            share = share * g
        share = share / (share + weight.index_select(0, j)).clamp_(min=TINY)
        merged.index_copy_(0, j, neighbour.lerp_(merged.index_select(0, i), share[:, None]))
    survivor, through = target, gates.view_as(target)
    for _ in range(len(pairs).bit_length()):  # no path is longer than there are turns
        survivor, through = take(survivor, survivor), through * take(through, survivor)
    routed = take(kept, survivor) & ~kept
    return merged.view_as(values), survivor, through * routed, routed
