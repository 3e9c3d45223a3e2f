"""H2O: keep the entries that received most attention from all prompt queries (heavy hitters), and the recent ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from selkv.heavyhitter import HeavyHitterMethod, Running
from selkv.scores import group_reduce
from selkv.state import LayerState, Needs


@dataclass(frozen=True)
class H2O(HeavyHitterMethod):
    """H2O (Zhang et al. 2023, arXiv 2306.14048; FMInference/H2O ac75c2a).

    Scores are plain column sums of the causal attention: early keys collect more, as in the authors' code. Half of the
    budget is recent, as in their runs; KVCache-Factory protects 8 or 32 (``recent=8``), kvpress divides by the number
    of queries and protects none (``normalise=true recent=0``, its ObservedAttention).

    Attributes
    ----------
    normalise : bool
        Divide each sum by the number of queries that can see the key; one-shot only.
    count_next : bool
        Native decoding as in the authors' masking simulation: their recent window counts the coming token, so the
        oldest recent entry is hidden from it.
    recent, reduce, decode
        See `HeavyHitterMethod`.
    """

    normalise: bool = False
    count_next: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalise and self.decode == "native":
            raise ValueError("normalise=True of H2O has no native decoding; use decode=one_shot")

    def needs(self, n: int, budget: int) -> Needs:
        """Column sums over all queries."""
        return Needs(window=0, column_mass=True)

    def scores(self, layer: LayerState, kept: int) -> Tensor:
        """Attention received from all queries, (Hkv, n)."""
        assert layer.column_mass is not None
        scores = group_reduce(layer.column_mass, layer.kv_heads, self.reduce)
        if self.normalise:
            scores = scores / torch.arange(layer.n, 0, -1, device=scores.device)
        return scores

    def select(self, state: Running, query: Tensor, key: Tensor) -> Tensor | None:
        """All entries; with `count_next` all but the oldest recent one."""
        if not self.count_next or not state.recent:
            return None
        chosen = torch.ones_like(state.scores, dtype=torch.bool)
        chosen[:, -state.recent] = False
        return torch.cat([chosen, chosen.new_ones(len(chosen), 1)], 1)
