"""What the merging methods share: one vocabulary, the selection under a merge, and the frame around it."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from selkv.compensate import compensation
from selkv.method import Method
from selkv.scores import group_reduce, indices, last, mask_of, pool, protect, top
from selkv.state import Kept, LayerState, Needs, keep, keep_all, take
from selkv.values import Amount, Count, Gate, Portion, Positive, Width, one_of

Queries = Literal["all", "window"]
"""Whose attention scores an entry: all prompt queries, or the window's."""
Compensation = Literal["none", "attention", "votes"]
Filter = Literal["none", "per_head", "official"]
"""Which evicted entries are similar enough to be merged; see `passes`."""


class Absorbed(NamedTuple):
    """What a merge makes of a layer, over all n entries; only the survivors' rows are read.

    Attributes
    ----------
    keys, values : Tensor, (Hkv, n, d)
        Entries after the merge.
    target : Tensor, (Hkv, n * t), int64
        Survivor that takes each entry (t of them where a method spreads an entry: block t holds the t-th of each).
    weight : Tensor, (Hkv, n * t), float32
        Share of the entry that arrives there, in [0, 1]; 0 for survivors and for what is dropped.
    routed : Tensor, (Hkv, n * t), bool
        Entries with a target, whatever the gate makes of it.
    """

    keys: Tensor
    values: Tensor
    target: Tensor
    weight: Tensor
    routed: Tensor


@dataclass(frozen=True)
class Gated(Method):
    """Options that every merge takes: the gate, and what survivors' logits gain for what they absorbed.

    Attributes
    ----------
    gate : str or float
        ``none``: as published; ``cosine``: each merged entry counts max(cos(v_j, v_target), 0) (SelKV, Eq. 4); a
        number t: the hard threshold cos >= t. In numerator and denominator, so that a closed gate is plain eviction.
    compensation : str
        Logit bias of survivors, alpha * log of: ``none``; ``attention``, the ratio of window attention after and before
        absorbing (SelKV, Eq. 6); ``votes``, the number of entries behind each (KeepKV).
    alpha : float
        Its strength; 1 restores the absorbed mass, SelKV uses 0.5.
    window : int
        Last prompt queries whose attention is read where a window is asked for.
    """

    gate: Gate = "none"
    compensation: Compensation = "none"
    alpha: Amount = 1.0
    window: Positive = 32

    def finish(self, layer: LayerState, kept: Kept, index: Tensor, absorbed: Absorbed) -> Kept:
        """Put merged entries and their logit bias in place of the plain ones; one cast, here."""
        log_ratio = torch.zeros_like(kept.bias)
        if self.compensation != "none":
            attention = window_mass(layer, self.window)
            attention = attention.repeat(1, absorbed.target.shape[1] // layer.n)
            ratio = compensation(self.compensation, 1.0, attention, absorbed.target, absorbed.weight)
            log_ratio = take(ratio, index)
        return kept._replace(
            keys=take(absorbed.keys, index).to(kept.keys.dtype),
            values=take(absorbed.values, index).to(kept.values.dtype),
            bias=kept.bias + self.alpha * log_ratio,
            counters=counters(absorbed, layer.kv_heads * layer.n - kept.entries, log_ratio),
        )


@dataclass(frozen=True)
class Merging(Gated):
    """Frame of a merging method: which entries survive, the same number in each head, and what they absorb.

    Attributes
    ----------
    sinks : int
        First entries that always survive.
    recent : float or None
        Last entries that always survive: below 1 a share of the budget, else a number; None: what the method's authors
        use. Sinks and recent entries count inside the budget, sinks first.
    score_queries : str
        Whose attention scores an entry: ``all`` prompt queries, or those of the ``window``.
    """

    sinks: Count = 4
    recent: Portion | None = 0.5
    score_queries: Queries = "all"

    def needs(self, n: int, budget: int) -> Needs:
        """Window attention, and the attention of all queries where it scores."""
        return Needs(window=self.window, column_mass=self.score_queries == "all")

    @abstractmethod
    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Entries that stay, (Hkv, m), ascending: the eviction that a closed gate leaves."""

    @abstractmethod
    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Merge the other entries into the survivors `index` (Hkv, m)."""

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Select, merge, compensate."""
        m = per_head(layer, budget)
        if m >= layer.n:
            return keep_all(layer)
        index = self.survivors(layer, m)
        return self.finish(layer, keep(layer, index), index, self.absorb(layer, index))


@dataclass(frozen=True)
class ScoredMerging(Merging):
    """A merging method whose survivors are sinks, the best scored entries and the recent ones.

    Attributes
    ----------
    selection : str
        ``h2o``: attention received (`score_queries`); ``snapkv``: pooled attention of the window; ``streaming``: no
        score, the most recent.
    kernel : int
        Average pooling of ``snapkv``, odd.
    """

    selection: Annotated[str, one_of("h2o", "snapkv", "streaming")] = "h2o"
    kernel: Width = 5

    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Sinks, the best scored, the recent."""
        sinks, recent = protected(m, self.sinks, recent_entries(self.recent, m))
        if self.selection == "streaming":
            return heavy(torch.zeros_like(layer.keys[..., 0], dtype=torch.float32), m, sinks, m - sinks)
        if self.selection == "h2o":
            return heavy(received(layer, self.score_queries, self.window), m, sinks, recent)
        mass = window_mass(layer, self.window) / readers(layer, "window", self.window)
        prefix = layer.n - recent
        return heavy(torch.cat([pool(mass[:, :prefix], self.kernel), mass[:, prefix:]], 1), m, sinks, recent)


def per_head(layer: LayerState, budget: int) -> int:
    """Entries of each KV head; every head keeps the same number.

    Raises
    ------
    ValueError
        Where the budget does not divide.
    """
    if budget % layer.kv_heads:
        raise ValueError(f"a budget of {budget} entries does not divide among {layer.kv_heads} KV heads")
    return budget // layer.kv_heads


def window_mass(layer: LayerState, window: int) -> Tensor:
    """Attention that each entry receives from the last `window` queries, mean over the group; (Hkv, n), float32."""
    return group_reduce(layer.window_attention(window).sum(1), layer.kv_heads)


def received(layer: LayerState, score_queries: str, window: int) -> Tensor:
    """Attention that each entry receives from ``all`` queries or those of the ``window``; (Hkv, n), float32."""
    if score_queries == "window":
        return window_mass(layer, window)
    if layer.column_mass is None:
        raise ValueError(
            "the attention of all queries was not recorded; ask for it in needs(), or score_queries=window"
        )
    return group_reduce(layer.column_mass, layer.kv_heads)


def readers(layer: LayerState, score_queries: str, window: int) -> Tensor:
    """How many of those queries see each entry, (n,): turns sums of attention into averages."""
    seen = torch.arange(layer.n, 0, -1, device=layer.keys.device)
    return seen if score_queries == "all" else seen.clamp(max=min(window, layer.queries.shape[1]))


def recent_entries(recent: float | None, m: int) -> int:
    """The recent window in entries: None half of the budget m, below 1 a share of it, else a number."""
    share = 0.5 if recent is None else recent
    return int(share * m + 1e-9) if share < 1 else int(share)


def protected(m: int, sinks: int, recent: int) -> tuple[int, int]:
    """Sinks and recent entries that fit the budget; sinks first."""
    sinks = min(sinks, m)
    return sinks, min(recent, m - sinks)


def heavy(scores: Tensor, m: int, sinks: int, recent: int) -> Tensor:
    """Indices (Hkv, m), ascending, of sinks, recent entries and the best scored of the rest."""
    n = scores.shape[1]
    always = last(n, recent, scores.device) | ~last(n, n - sinks, scores.device)
    return top(protect(scores, always), m)


def others(index: Tensor, n: int) -> Tensor:
    """Indices (Hkv, n - m), ascending, of the entries that do not survive."""
    return indices(~mask_of(index, n))[0]


def threshold(similarity: Tensor, index: Tensor, how: str) -> Tensor:
    """Mean similarity of the evicted entries: of each head, or with ``official`` of all heads together; (Hkv,)."""
    nearest = take(similarity, others(index, similarity.shape[1]))
    return nearest.mean().expand(len(nearest)) if how == "official" else nearest.mean(1)


def passes(similarity: Tensor, index: Tensor, how: str, least: Tensor | None = None) -> Tensor:
    """Which evicted entries are similar enough to be merged (LOOK-M's and D2O's test); (Hkv, n), bool.

    Parameters
    ----------
    similarity : Tensor, (Hkv, n)
        Cosine of each key with the nearest survivor's.
    index : Tensor, (Hkv, m)
        Survivors.
    how : str
        ``none``: all of them. ``per_head``: those that reach the head's threshold. ``official``: the released codes',
        where the r-th evicted entries of all heads, unrelated positions, pass or fail together by their mean.
    least : Tensor, (Hkv,), optional
        The threshold, if not the mean over the evicted entries.
    """
    out = others(index, similarity.shape[1])
    mask = torch.zeros_like(similarity, dtype=torch.bool)
    if how == "none":
        return mask.scatter(1, out, True)
    least = threshold(similarity, index, how) if least is None else least
    nearest = take(similarity, out)
    if how == "official":
        nearest = nearest.mean(0, keepdim=True).expand_as(nearest)
    return mask.scatter(1, out, nearest >= least[:, None])


def counters(absorbed: Absorbed, evicted: int, log_ratio: Tensor) -> dict[str, float]:
    """What a run reports of a merge.

    Parameters
    ----------
    absorbed : Absorbed
    evicted : int
        Evicted entries, summed over the heads.
    log_ratio : Tensor, (Hkv, m)
        Log of the compensated ratio.
    """
    n = absorbed.values.shape[1]
    routed = absorbed.routed.unflatten(1, (-1, n)).any(1)
    weight = absorbed.weight.unflatten(1, (-1, n)).sum(1)
    count = float(routed.sum())
    return {
        "routed": count / evicted,
        "dropped": 1 - count / evicted,
        "gate_zero": float((routed & (weight == 0)).sum()) / max(count, 1),
        "mean_gate": float(weight[routed].sum()) / max(count, 1),
        "max_log_ratio": float(log_ratio.max()),
    }
