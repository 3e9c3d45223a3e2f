"""SelKV (arXiv 2607.16213): keep what contributes most, merge what agrees, correct the logits for what was absorbed."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from selkv.compensate import FLOOR, attention_ratio
from selkv.errors import UserError
from selkv.merge import absorb
from selkv.method import Method
from selkv.rotary import NO_ROTATION, close_gaps
from selkv.routing import (
    bucket_argmax,
    bucket_leaders,
    coattention,
    literal,
    nearest_candidate,
    own_or,
    strongest_candidate,
)
from selkv.scores import group_reduce, last, mask_of, pool, protect, top
from selkv.state import Kept, LayerState, Needs, keep, keep_all, take
from selkv.values import Amount, Count, Gate, Positive, Width


class Routes(NamedTuple):
    """Where each entry goes: target (Hkv, n) int64, itself where it goes nowhere, and routed (Hkv, n) bool."""

    target: Tensor
    routed: Tensor


@dataclass(frozen=True)
class SelKV(Method):
    """Selective merging with a soft cosine gate and attention-ratio compensation.

    Attributes
    ----------
    window : int
        Observation window W: queries whose attention scores the entries (32).
    recent : int
        Last entries that are always kept, inside the budget (16).
    sinks : int
        First entries that are always kept, inside the budget (0: the paper forces none).
    kernel : int
        Pooling kernel of the score, odd (5).
    bucket : int
        Positions a routing bucket (32).
    selection_scope : str
        ``auto``: shared_union_trim on GQA, per_head on MHA; ``shared_union_trim``: the union of each head's best,
        trimmed by the head-mean score; ``shared_mean``: the best by the head-mean score; ``per_head``.
    gqa_reduce : str
        ``mean`` or ``max`` over the query heads of a KV head.
    pool_on : str
        Pool the ``score`` (attention times value norm) or the ``attention`` before the product.
    pool_region : str
        ``candidates``: pool before the recent window only; ``full``: pool over all entries.
    value_norm : str
        ``l2`` (Eq. 1), ``l1`` (VATP) or ``none``.
    normalise_by_visibility : bool
        Divide attention by the number of window queries that can see the entry.
    routing : str
        ``window``: the most attended kept entry of the bucket; ``coattention``: attended together with the evicted
        one; ``literal``: Eq. 3 as printed, the earlier entry that the evicted one itself attended to.
    targets : str
        ``all`` kept entries, ``no_recent`` or ``no_sink`` (position 0).
    route_within : str
        ``shared``: the layer's kept set; ``own``: those that were also in the head's own best (a third party's port).
    empty_bucket : str
        ``drop``; ``nearest``: the positionally nearest kept entry; ``global``: the most attended one of all.
    merge : bool
        False is plain eviction.
    gate : str or float
        ``cosine`` (Eq. 4), ``none``, or a number t for the hard threshold [cos >= t].
    alpha : float
        Strength of the logit bias alpha * log R (0.5).
    ratio_reduce : str
        On shared sets, average R over KV heads: ``mean`` of R, ``logmean`` of log R, or ``none``.
    eps : float
        Floor of the attention in R's denominator.
    max_log_ratio : float or None
        Clamp of log R.
    reposition : bool
        Re-embed kept keys at consecutive positions (Eq. 7). The block ends just before the next token's position,
        which gives the same logits as starting at 0.
    """

    window: Positive = 32
    recent: Count = 16
    sinks: Count = 0
    kernel: Width = 5
    bucket: Positive = 32
    selection_scope: Literal["auto", "shared_union_trim", "shared_mean", "per_head"] = "auto"
    gqa_reduce: Literal["mean", "max"] = "mean"
    pool_on: Literal["score", "attention"] = "score"
    pool_region: Literal["candidates", "full"] = "candidates"
    value_norm: Literal["l2", "l1", "none"] = "l2"
    normalise_by_visibility: bool = False
    routing: Literal["window", "coattention", "literal"] = "window"
    targets: Literal["all", "no_recent", "no_sink"] = "all"
    route_within: Literal["shared", "own"] = "shared"
    empty_bucket: Literal["drop", "nearest", "global"] = "drop"
    merge: bool = True
    gate: Gate = "cosine"
    alpha: Amount = 0.5
    ratio_reduce: Literal["mean", "logmean", "none"] = "mean"
    eps: Amount = FLOOR
    max_log_ratio: Amount | None = None
    reposition: bool = False

    def needs(self, n: int, budget: int) -> Needs:
        """The window; the block-diagonal attention of all queries for literal routing."""
        literal_blocks = frozenset({self.bucket}) if self.routing == "literal" and self.merge else frozenset()
        return Needs(window=self.window, blocks=literal_blocks, rotation=self.reposition)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Select, route, gate, merge, compensate (steps 1 to 7 of docs/methods.md)."""
        m = budget // layer.kv_heads
        if m >= layer.n:
            return keep_all(layer)
        watched = layer if layer.memo is not None else layer.remembering()
        attention = self._attention(watched)
        index, own, union = self._select(layer, attention, m)
        first = self._first_share(watched, index)
        if self.routing == "coattention":
            layer = watched
        del watched  # where no other job reads it, the window's attention is gone before the merge needs memory
        kept = self._merge(layer, attention, index, own) if self.merge else keep(layer, index)
        counters = {**kept.counters, "union": float(union), "evicted_first_share": first}
        return self._repositioned(layer, kept._replace(counters=counters))

    # 1. attention of the window on each entry

    def _attention(self, layer: LayerState) -> Tensor:
        """a[h, j] = sum over window queries of the group's attention; (Hkv, n)."""
        received = layer.window_attention(self.window)
        if self.gqa_reduce == "mean":  # the sum first: the mean over the group is then small
            a = group_reduce(received.sum(1), layer.kv_heads)
        else:
            a = group_reduce(received, layer.kv_heads, self.gqa_reduce).sum(1)
        if not self.normalise_by_visibility:
            return a
        age = torch.arange(layer.n - 1, -1, -1, device=a.device)
        return a / (age + 1).clamp(max=received.shape[1])

    def _first_share(self, layer: LayerState, index: Tensor) -> float:
        """Share of the window's attention on position 0, mean over the heads; 0 for heads that keep it."""
        if int(layer.positions[0]) != 0:
            return 0.0
        share = group_reduce(layer.window_attention(self.window)[:, :, 0], layer.kv_heads).mean(-1)
        return float((share * (index[:, 0] != 0)).mean())

    # 1-2. contribution scores and the kept set

    def _score(self, layer: LayerState, attention: Tensor, candidates: int) -> Tensor:
        """c[h, j] over the candidates, the entries before the recent window; (Hkv, C)."""
        order = {"l1": 1, "l2": 2}.get(self.value_norm)
        norm = (
            torch.ones_like(attention)
            if order is None
            else torch.linalg.vector_norm(layer.values, order, dim=-1, dtype=torch.float32)
        )
        if self.pool_region == "candidates":
            attention, norm = attention[:, :candidates], norm[:, :candidates]
        if self.pool_on == "score":
            return pool(attention * norm, self.kernel)[:, :candidates]
        return (pool(attention, self.kernel) * norm)[:, :candidates]

    def _shares(self, layer: LayerState) -> bool:
        """Whether all heads keep one set: on GQA by default, per head on MHA."""
        gqa = layer.queries.shape[0] > layer.kv_heads
        return gqa if self.selection_scope == "auto" else self.selection_scope != "per_head"

    def _select(self, layer: LayerState, attention: Tensor, m: int) -> tuple[Tensor, Tensor, int]:
        """Kept entries (Hkv, m), ascending; each head's own best and recent ones (Hkv, n) bool; union before the trim.

        The union is that of the heads' best entries before the recent window.
        """
        n, heads, recent = layer.n, layer.kv_heads, min(self.recent, m)
        candidates, wanted = n - recent, m - recent
        score = self._score(layer, attention, candidates)
        sinks = torch.arange(candidates, device=score.device) < min(self.sinks, wanted)
        score = protect(score, sinks)
        chosen = top(score, wanted)
        best = mask_of(chosen, n)
        own, union = best | last(n, recent, best.device), best[:, :candidates].any(0)
        if self._shares(layer):
            mean = score.mean(0)
            if self.selection_scope != "shared_mean":
                mean = mean.masked_fill(~union, float("-inf"))
            chosen = top(mean, wanted).expand(heads, -1)
        tail = torch.arange(candidates, n, device=score.device).expand(heads, -1)
        return torch.cat([chosen, tail], 1), own, int(union.sum())

    # 3. routing

    def _route(self, layer: LayerState, attention: Tensor, kept: Tensor, own: Tensor) -> Routes:
        n = layer.n
        candidates = kept & own if self.route_within == "own" else kept
        if self.targets == "no_recent":
            candidates = candidates & ~last(n, self.recent, kept.device)
        elif self.targets == "no_sink":
            candidates = candidates & (layer.positions > 0)
        if self.routing == "window":
            target, found = bucket_leaders(attention, candidates, self.bucket)
        else:
            affinity = (
                literal(layer, self.bucket)
                if self.routing == "literal"
                else coattention(layer.window_attention(self.window), layer.kv_heads, self.bucket)
            )
            target, found = bucket_argmax(affinity, candidates, self.bucket)
        if self.empty_bucket != "drop":
            some = candidates.any(-1, keepdim=True)
            fallback = (
                nearest_candidate(candidates)
                if self.empty_bucket == "nearest"
                else strongest_candidate(attention, candidates)
            )
            target, found = torch.where(found, target, fallback.clamp(0, n - 1)), found | some
        routed = found & ~kept
        return Routes(own_or(target, routed), routed)

    # 4-6. gate, merge, compensation

    def _merge(self, layer: LayerState, attention: Tensor, index: Tensor, own: Tensor) -> Kept:
        kept = mask_of(index, layer.n)
        target, routed = self._route(layer, attention, kept, own)
        values, gate = absorb(layer.values, attention, index, target, routed, self.gate)
        ratio = take(attention_ratio(attention, target, gate, self.eps), index)
        counters = self._merge_counters(attention, kept, routed, gate, ratio)
        bias = self.alpha * self._log_ratio(layer, ratio)
        return keep(layer, index)._replace(values=values.to(layer.values.dtype), bias=bias, counters=counters)

    def _log_ratio(self, layer: LayerState, ratio: Tensor) -> Tensor:
        """Log R, clamped, averaged over the KV heads that share one kept set; (Hkv, m)."""
        log_ratio = ratio.log()
        if self.max_log_ratio is not None:
            log_ratio = log_ratio.clamp(max=self.max_log_ratio)
        if not self._shares(layer) or self.ratio_reduce == "none":
            return log_ratio
        mean = log_ratio.mean(0) if self.ratio_reduce == "logmean" else log_ratio.exp().mean(0).log()
        return mean.expand_as(log_ratio)

    def _merge_counters(
        self, attention: Tensor, kept: Tensor, routed: Tensor, gate: Tensor, ratio: Tensor
    ) -> dict[str, float]:
        evicted, count = ~kept, routed.sum()
        return {
            "routed": float(count / evicted.sum()),
            "dropped": float((evicted & ~routed).sum() / evicted.sum()),
            "gate_zero": float(((gate == 0) & routed).sum() / count.clamp(min=1)),
            "mean_gate": float(gate.sum() / count.clamp(min=1)),
            "floored": float((kept & (attention < self.eps)).sum()),
            "max_log_ratio": float(ratio.max().log()),
        }

    # 7. repositioning

    def _repositioned(self, layer: LayerState, kept: Kept) -> Kept:
        """Re-embed kept keys as a block that ends just before the next token (Eq. 7, anchored at the end)."""
        if not self.reposition:
            return kept
        if layer.inv_freq is None:
            raise UserError(NO_ROTATION)
        return kept._replace(keys=close_gaps(kept.keys, kept.positions, int(layer.positions[-1]), layer.inv_freq))
