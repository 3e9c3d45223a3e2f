"""KeepKV (arXiv 2504.09936): merge by votes and scores, so that a reference query's output does not change."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from baselines.merging import Absorbed, Compensation, Queries, heavy, protected, recent_entries
from baselines.native_merging import Live, ScoredNative
from selkv.merge import arrival, gate_weight, in_turns, nearest_kept, scatter_sum, weighted_merge
from selkv.scores import mask_of
from selkv.state import LayerState, take
from selkv.values import Cosine, Portion, one_of
from selkv.window import attention_logits, visible


@dataclass(frozen=True)
class KeepKV(ScoredNative):
    """KeepKV: votes p count the entries behind each one and enter attention as log p; scores s = exp(logit).

    Attributes
    ----------
    keys : str
        ``zip``: k = lam (w_e k_e + w_c k_c) / (w_e + w_c) with w = p s (Eq. 7), which keeps p exp(q k) of the reference
        query; one merge after the other in position order. ``convex``: without lam, as released. ``fixed``: as they
        are.
    threshold : float
        Merge where the cosine with the nearest survivor's key exceeds it (0.8); drop otherwise.
    score : str
        Over the last `window` queries that see an entry: ``ema`` weighs them by ema ** age; ``mean``, as released.
    ema : float
        0.9 (a third party's; the paper gives none).
    selection : str
        ``snapkv``, ``h2o``, ``streaming``, or ``release``: sum of scores over the window, times a factor
        that rises from 1 to 1.2 with the query.
    compensation : str
        ``votes`` with alpha 1 is KeepKV.
    gate_keys : bool
        Whether the gate also weighs keys.
    """

    selection: Annotated[str, one_of("h2o", "snapkv", "streaming", "release")] = "snapkv"
    score_queries: Queries = "window"
    recent: Portion | None = 0.2
    compensation: Compensation = "votes"
    keys: Literal["zip", "convex", "fixed"] = "zip"
    threshold: Cosine = 0.8
    score: Literal["ema", "mean"] = "ema"
    ema: Annotated[float, Field(gt=0, le=1)] = 0.9
    gate_keys: bool = True

    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Sinks, the best scored, the recent."""
        if self.selection != "release":
            return super().survivors(layer, m)
        return self._best(first_memory(layer, self.window)[:, :-1], m)

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Into the nearest survivor, by votes and scores."""
        return self._merge(layer.keys, layer.values, first_memory(layer, self.window), index)[0]

    def remember(self, layer: LayerState, index: Tensor) -> Tensor:
        """Log scores of the last queries and, in the last row, log votes; (Hkv, w + 1, m)."""
        memory = first_memory(layer, self.window)
        if index.shape[1] < layer.n:
            memory = self._merge(layer.keys, layer.values, memory, index)[1]
        return pick(memory, index)

    def observe(self, state: Live, query: Tensor, key: Tensor) -> Tensor:
        """The newest query's scores take the place of the oldest's."""
        keys = torch.cat([state.kept.keys, key[:, None]], 1)
        logits = attention_logits(query[:, None], keys, state.scale, state.softcap)
        newest = group_log_mean(logits, len(key))
        older = F.pad(state.memory[:, :-1], (0, 1), value=float("-inf"))
        if older.shape[1] >= self.window:
            older = older[:, 1:]
        return torch.cat([older, newest, F.pad(state.memory[:, -1:], (0, 1))], 1)

    def stay(self, live: Live) -> Tensor:
        """All but the least attended, oldest or lowest scored unprotected entry."""
        if self.selection != "release":
            return super().stay(live)
        return self._best(live.memory[:, :-1], live.capacity)

    def absorb_one(self, live: Live, index: Tensor) -> tuple[Absorbed, Tensor]:
        """Into the nearest survivor."""
        absorbed, memory = self._merge(live.kept.keys, live.kept.values, live.memory, index)
        return absorbed, pick(memory, index)

    def reference(self, scores: Tensor) -> Tensor:
        """Log of the mean score over the queries that see an entry; (Hkv, w, n) to (Hkv, n)."""
        age = torch.arange(scores.shape[1] - 1, -1, -1, device=scores.device, dtype=torch.float32)
        factor = torch.zeros_like(age) if self.score == "mean" else age * torch.tensor(self.ema).log()
        factor = factor[:, None].expand(scores.shape[1:]).masked_fill(scores.isinf(), float("-inf"))
        return (scores + factor).logsumexp(1) - factor.logsumexp(1)

    def _best(self, scores: Tensor, m: int) -> Tensor:
        sinks, recent = protected(m, self.sinks, recent_entries(self.recent, m))
        rising = torch.linspace(1, 1.2, scores.shape[1], device=scores.device).log()
        return heavy((scores + rising[:, None]).logsumexp(1), m, sinks, recent)

    def _merge(self, keys: Tensor, values: Tensor, memory: Tensor, index: Tensor) -> tuple[Absorbed, Tensor]:
        scores, votes = memory[:, :-1], memory[:, -1].exp()
        target, similarity = nearest_kept(keys, index)
        routed = ~mask_of(index, keys.shape[1]) & (similarity > self.threshold)
        reference = self.reference(scores)
        gate = gate_weight(values, target, self.gate) * routed
        share = gate if self.gate_keys else routed.float()
        merged = keys.float()
        if self.keys == "zip":
            merged, accepted = zip_keys(keys, target, share, reference, votes)
            routed, gate = routed & accepted, gate * accepted
        # weights p s relative to the largest that meets in a target: exp cannot overflow
        weight = memory[:, -1] + reference
        top = weight.scatter_reduce(1, target, weight.masked_fill(~routed, float("-inf")), "amax")
        own = (weight - top).exp()
        given = (weight - take(top, target)).masked_fill(~routed, float("-inf")).exp()
        if self.keys == "convex":
            merged = weighted_merge(keys, own, target, share * given)
        absorbed = Absorbed(merged, weighted_merge(values, own, target, gate * given), target, gate, routed)
        return absorbed, merged_memory(memory, target, gate)


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Columns (Hkv, w, m) of x (Hkv, w, n)."""
    return x.gather(2, index[:, None].expand(-1, x.shape[1], -1))


def group_log_mean(logits: Tensor, kv_heads: int) -> Tensor:
    """Log of the mean exp(logit) over the query heads of a group; (H, w, n) to (Hkv, w, n)."""
    grouped = logits.unflatten(0, (kv_heads, -1))
    return grouped.logsumexp(1) - torch.tensor(grouped.shape[1], device=logits.device).log()


def first_memory(layer: LayerState, window: int) -> Tensor:
    """Log scores of the last prompt queries, -inf where a query does not see the entry, and log votes, all 0.

    (Hkv, w + 1, n), float32.
    """
    queries = layer.queries[:, -window:]
    logits = attention_logits(queries, layer.keys, layer.scale, layer.softcap)
    age = torch.arange(queries.shape[1] - 1, -1, -1, device=queries.device)  # more than entries where a window slides
    seen = visible(layer.positions[-1] - age, layer.positions, layer.sliding_window)
    scores = group_log_mean(logits.masked_fill(~seen, float("-inf")), layer.kv_heads)
    return F.pad(scores, (0, 0, 0, 1))


def merged_memory(memory: Tensor, target: Tensor, gate: Tensor) -> Tensor:
    """Votes added up, and scores averaged by votes, except for queries that do not see the target itself."""
    votes = memory[:, -1:].exp()
    count = votes + scatter_sum(gate * votes[:, 0], target)[:, None]
    own = memory[:, :-1] + memory[:, -1:]
    given, into = own + gate.log()[:, None], target[:, None].expand_as(own)
    top = own.scatter_reduce(2, into, given, "amax").clamp(min=torch.finfo(own.dtype).min)
    total = (own - top).exp().scatter_add(2, into, (given - top.gather(2, into)).exp())
    scores = (top + total.log() - count.log()).masked_fill(memory[:, :-1].isinf(), float("-inf"))
    return torch.cat([scores, count.log()], 1)


def zip_keys(
    keys: Tensor, target: Tensor, share: Tensor, reference: Tensor, votes: Tensor, floor: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Eq. 7, one merge after the other in position order.

    Parameters
    ----------
    keys : Tensor, (Hkv, n, d)
    target : Tensor, (Hkv, n), int64
    share : Tensor, (Hkv, n)
        Gate; 0 where nothing is merged.
    reference : Tensor, (Hkv, n), float32
        Log score ln s, the logit of the reference query.
    votes : Tensor, (Hkv, n)
    floor : float
        A merge is skipped where the mean log score, lam's denominator, is closer to 0, or the key not finite.

    Returns
    -------
    merged : Tensor, (Hkv, n, d), float32
    accepted : Tensor, (Hkv, n), bool
        False where the merge was skipped.
    """
    raw, log_s = keys.float().flatten(0, 1), reference.flatten()
    count, given = votes.flatten().clone(), (share * votes).flatten()
    merged, score = raw.clone(), log_s.clone()
    accepted = torch.ones_like(given, dtype=torch.bool)
    for i, j in in_turns(target, arrival(target, share > 0)):
        weight = torch.logaddexp(given[i].log() + log_s[i], count[j].log() + score[j])
        ratio = (given[i].log() + log_s[i] - weight).exp()
        mean = torch.lerp(score[j], log_s[i], ratio)
        scaled = weight - (count[j] + given[i]).log()
        key = (scaled / mean)[:, None] * torch.lerp(merged[j], raw[i], ratio[:, None])
        fine = (mean.abs() >= floor) & key.isfinite().all(-1)
        accepted[i] = fine
        merged[j[fine]], score[j[fine]] = key[fine], scaled[fine]
        count[j] += given[i] * fine
    return merged.view_as(keys), accepted.view_as(target)
