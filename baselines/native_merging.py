"""Native decoding of the merging methods: for each generated token, one entry is merged away."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from baselines.merging import Absorbed, Merging, ScoredMerging, heavy, protected, readers, received, recent_entries
from selkv.heavyhitter import append, narrow
from selkv.merge import scatter_sum
from selkv.method import NativeMethod
from selkv.scores import group_reduce
from selkv.state import Kept, LayerState, take


class Live(NamedTuple):
    """A cache that keeps merging.

    Attributes
    ----------
    kept : Kept
    mass : Tensor, (Hkv, m), float32
        Attention that each entry has received, from the scoring prompt queries and all generated ones.
    reads : Tensor, (Hkv, m)
        How many queries that is.
    ratio : Tensor, (Hkv, m), float32
        Compensated ratio: the logit bias is alpha times its log.
    memory : Tensor
        What else a method carries along.
    capacity : int
        Entries of a head; at ratio 1 no limit.
    last : int
        Position of the newest token.
    scale, softcap
        Constants of the layer's logits.
    """

    kept: Kept
    mass: Tensor
    reads: Tensor
    ratio: Tensor
    memory: Tensor
    capacity: int
    last: int
    scale: float
    softcap: float | None


@dataclass(frozen=True)
class NativeMerging(Merging, NativeMethod):
    """A merging method that can keep merging while it generates.

    Attributes
    ----------
    decode : str
        ``native``: once the budget is full, each generated token has one entry evicted and merged in each head.
    """

    def start(self, layer: LayerState, budget: int) -> Live:
        """The compressed prompt with its running statistics."""
        kept = self.compress(layer, budget)
        index = kept.positions - layer.positions[0]
        whole = index.shape[1] == layer.n
        ratio = (kept.bias / self.alpha).exp() if self.alpha else torch.ones_like(kept.bias)
        return Live(
            kept=kept,
            mass=take(received(layer, self.score_queries, self.window), index),
            reads=readers(layer, self.score_queries, self.window)[index],
            ratio=ratio,
            memory=self.remember(layer, index),
            capacity=torch.iinfo(torch.int64).max if whole else index.shape[1],
            last=int(layer.positions[-1]),
            scale=layer.scale,
            softcap=layer.softcap,
        )

    def step(self, state: Live, query: Tensor, key: Tensor, value: Tensor, attention_row: Tensor) -> Live:
        """Append the token; where that exceeds the budget, merge one entry of each head away."""
        attention = group_reduce(attention_row, len(key))
        live = state._replace(
            kept=append(state.kept, key, value, state.last + 1),
            mass=F.pad(state.mass, (0, 1)) + attention,
            reads=F.pad(state.reads, (0, 1)) + 1,
            ratio=F.pad(state.ratio, (0, 1), value=1.0),
            memory=self.observe(state, query, key),
            last=state.last + 1,
        )
        if live.mass.shape[1] <= live.capacity:
            return live
        index = self.stay(live)
        absorbed, memory = self.absorb_one(live, index)
        ratio = self._compensated(live, absorbed)
        dtype = live.kept.keys.dtype
        kept = live.kept._replace(
            keys=absorbed.keys.to(dtype), values=absorbed.values.to(dtype), bias=self.alpha * ratio.log()
        )
        return live._replace(
            kept=narrow(kept, index),
            mass=take(live.mass, index),
            reads=take(live.reads, index),
            ratio=take(ratio, index),
            memory=memory,
        )

    def remember(self, layer: LayerState, index: Tensor) -> Tensor:
        """What a method carries along besides the statistics; nothing by default."""
        return torch.empty(0)

    def observe(self, state: Live, query: Tensor, key: Tensor) -> Tensor:
        """`Live.memory` after the token's query (H, d) and key (Hkv, d) are seen."""
        return state.memory

    def stay(self, live: Live) -> Tensor:
        """All entries of each head but one, (Hkv, m): by default without the least attended unprotected one."""
        sinks, recent = protected(live.capacity, self.sinks, recent_entries(self.recent, live.capacity))
        return heavy(live.mass, live.capacity, sinks, recent)

    @abstractmethod
    def absorb_one(self, live: Live, index: Tensor) -> tuple[Absorbed, Tensor]:
        """Merge the entry that is not in `index` (Hkv, m) of m + 1, and update `Live.memory`."""

    def _compensated(self, live: Live, absorbed: Absorbed) -> Tensor:
        """Ratios after a merge: an entry takes over what its source had absorbed before."""
        if self.compensation == "none":
            return live.ratio
        spread = absorbed.target.shape[1] // live.mass.shape[1]
        gain = absorbed.weight * live.ratio.repeat(1, spread)
        if self.compensation == "votes":
            return live.ratio + scatter_sum(gain, absorbed.target)[:, : live.ratio.shape[1]]
        gain = gain * live.mass.repeat(1, spread)
        arrived = scatter_sum(gain, absorbed.target)[:, : live.ratio.shape[1]]
        return live.ratio + arrived / live.mass.clamp(min=1e-8)


@dataclass(frozen=True)
class ScoredNative(ScoredMerging, NativeMerging):
    """Sinks, the best scored and the recent entries, after prefill and while decoding."""

    def stay(self, live: Live) -> Tensor:
        """All but the least attended, or with ``streaming`` the oldest, unprotected entry of each head."""
        if self.selection != "streaming":
            return super().stay(live)
        sinks, recent = protected(live.capacity, self.sinks, live.capacity)
        return heavy(torch.zeros_like(live.mass), live.capacity, sinks, recent)
