"""What the merging methods share: one vocabulary, the selection under a merge, and the frame around it."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from selkv.compensate import compensation
from selkv.method import Method, NativeMethod, at_least, choice
from selkv.scores import group_reduce, indices, last, mask_of, pool, protect, top
from selkv.state import Kept, LayerState, Needs, keep, keep_all, take


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
    """

    keys: Tensor
    values: Tensor
    target: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Merging(Method):
    """Frame of a merging method: which entries survive, what they absorb, and what their logits gain for it.

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
    sinks : int
        First entries that always survive.
    recent : float
        Last entries that always survive: below 1 a share of the budget, else a number. Both inside the budget.
    window : int
        Last prompt queries whose attention is read where a window is asked for.
    score_queries : str
        Whose attention scores an entry: ``all`` prompt queries, or those of the ``window``.
    """

    gate: str | float = "none"
    compensation: str = "none"
    alpha: float = 1.0
    sinks: int = 4
    recent: float = 0.5
    window: int = 32
    score_queries: str = "all"

    def __post_init__(self) -> None:
        if isinstance(self.gate, str):
            choice(self, "gate", ("none", "cosine"))
        choice(self, "compensation", ("none", "attention", "votes"))
        choice(self, "score_queries", ("all", "window"))
        at_least(self, 0, "alpha", "sinks", "recent")
        at_least(self, 1, "window")

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

    def finish(self, layer: LayerState, kept: Kept, index: Tensor, absorbed: Absorbed) -> Kept:
        """Put merged entries and their logit bias in place of the plain ones; one cast, here."""
        keys, values, target, weight = absorbed
        bias = torch.zeros_like(kept.bias)
        if self.compensation != "none":
            attention = window_mass(layer, self.window)
            attention = attention.repeat(1, target.shape[1] // layer.n)
            bias = take(compensation(self.compensation, self.alpha, attention, target, weight), index)
        return kept._replace(
            keys=take(keys, index).to(kept.keys.dtype),
            values=take(values, index).to(kept.values.dtype),
            bias=kept.bias + bias,
            counters=counters(evicted(kept.positions, layer), weight, bias),
        )


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

    selection: str = "h2o"
    kernel: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self, "selection", ("h2o", "snapkv", "streaming"))
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel={self.kernel} of {type(self).__name__}; must be odd")

    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Sinks, the best scored, the recent."""
        sinks, recent = protected(m, self.sinks, recent_entries(self.recent, m))
        if self.selection == "streaming":
            return heavy(torch.zeros_like(layer.keys[..., 0], dtype=torch.float32), m, sinks, m - sinks)
        if self.selection == "h2o":
            return heavy(received(layer, self.score_queries, self.window), m, sinks, recent)
        mass = window_mass(layer, self.window)
        prefix = layer.n - recent
        return heavy(torch.cat([pool(mass[:, :prefix], self.kernel), mass[:, prefix:]], 1), m, sinks, recent)


@dataclass(frozen=True)
class NativeMerging(Merging, NativeMethod):
    """A merging method that can keep merging while it generates: one entry for each new one."""

    def __post_init__(self) -> None:
        Merging.__post_init__(self)
        NativeMethod.__post_init__(self)


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


def recent_entries(recent: float, m: int) -> int:
    """The recent window in entries: below 1 a share of the budget, else a number."""
    return int(recent * m + 1e-9) if recent < 1 else int(recent)


def protected(m: int, sinks: int, recent: int) -> tuple[int, int]:
    """Sinks and recent entries that fit the budget; sinks first."""
    sinks = min(sinks, m)
    return sinks, min(recent, m - sinks)


def heavy(scores: Tensor, m: int, sinks: int, recent: int) -> Tensor:
    """Indices (Hkv, m), ascending, of sinks, recent entries and the best scored of the rest."""
    n = scores.shape[1]
    always = last(n, recent, scores.device) | ~last(n, n - sinks, scores.device)
    return top(protect(scores, always), m)


def evicted(positions: Tensor, layer: LayerState) -> Tensor:
    """Entries (Hkv, n), bool, that are not among the kept prompt positions (Hkv, m); -1 is padding."""
    entry = positions - layer.positions[0]
    padded = torch.where(positions < 0, layer.n, entry)
    return ~mask_of(padded, layer.n + 1)[:, : layer.n]


def others(index: Tensor, n: int) -> Tensor:
    """Indices (Hkv, n - m), ascending, of the entries that do not survive."""
    return indices(~mask_of(index, n))[0]


def passes(similarity: Tensor, index: Tensor, how: str) -> Tensor:
    """Which entries are similar enough to be merged (LOOK-M's and D2O's test); (Hkv, n), bool.

    Parameters
    ----------
    similarity : Tensor, (Hkv, n)
        Cosine of each key with the nearest survivor's.
    index : Tensor, (Hkv, m)
        Survivors.
    how : str
        ``none``: all evicted entries. ``per_head``: at least the head's mean over its evicted entries. ``official``:
        the released codes', where the r-th evicted entries of all heads, unrelated positions, pass or fail together
        by the mean of their similarities.
    """
    out = others(index, similarity.shape[1])
    mask = torch.zeros_like(similarity, dtype=torch.bool)
    if how == "none":
        return mask.scatter(1, out, True)
    nearest = take(similarity, out)
    if how == "official":
        nearest = nearest.mean(0, keepdim=True).expand_as(nearest)
    return mask.scatter(1, out, nearest >= nearest.mean(1, keepdim=True))


def counters(gone: Tensor, weight: Tensor, bias: Tensor) -> dict[str, float]:
    """What a run reports of a merge: shares of the evicted entries, and the largest logit bias."""
    arrived = weight.view(len(gone), -1, gone.shape[1]).amax(1)[gone]
    routed = (arrived > 0).float()
    return {
        "routed": float(routed.mean()),
        "dropped": float(1 - routed.mean()),
        "mean_gate": float(arrived.sum() / routed.sum().clamp(min=1)),
        "max_bias": float(bias.max()),
    }
