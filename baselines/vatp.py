"""VATP: H2O's scores (or those of the last queries) times the norm of each value."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from selkv.heavyhitter import HeavyHitterMethod
from selkv.scores import group_reduce
from selkv.state import LayerState, Needs
from selkv.values import Count, Positive

_ORDER = {"l1": 1, "l2": 2}


@dataclass(frozen=True)
class VATP(HeavyHitterMethod):
    """VATP (Guo et al. 2024, arXiv 2406.12335; guozhiyu/vatp 39ea686).

    Attributes
    ----------
    sinks : int
        First entries that always stay, at most a quarter of the budget; they count among the heavy hitters.
    norm : str
        ``l1`` (the authors' choice), ``l2`` or ``none`` (plain H2O, for which the authors use no sinks).
    queries : str or int
        ``all``, or the number of last queries that score (400 in the authors' Scissorhands mode, with ``recent=10``).
    recent, reduce, decode
        See `HeavyHitterMethod`.
    """

    sinks: Count = 20
    norm: Literal["l1", "l2", "none"] = "l1"
    queries: Literal["all"] | Positive = "all"

    def needs(self, n: int, budget: int) -> Needs:
        """Column sums over all queries, or the last queries."""
        if isinstance(self.queries, int):
            return Needs(window=self.queries)
        return Needs(window=0, column_mass=True)

    def scores(self, layer: LayerState, kept: int) -> Tensor:
        """Attention received times the value's norm, (Hkv, n); inf on the sinks."""
        if isinstance(self.queries, int):
            # divided by the nominal number of queries, also on shorter prompts, as the authors do
            received = layer.window_attention(self.queries).sum(1) / self.queries
        else:
            assert layer.column_mass is not None
            received = layer.column_mass
        scores = self.gain(group_reduce(received, layer.kv_heads, self.reduce), layer.values)
        scores[:, : min(self.sinks, kept // 4)] = float("inf")
        return scores

    def gain(self, attention: Tensor, values: Tensor) -> Tensor:
        """Attention (Hkv, m) times the norm of the values (Hkv, m, d)."""
        if self.norm == "none":
            return attention.clone()
        return attention * values.float().norm(_ORDER[self.norm], dim=-1)

    def protected(self, kept: int) -> int:
        """Number of recent entries among `kept`, after the sinks."""
        return min(super().protected(kept), kept - min(self.sinks, kept // 4))
