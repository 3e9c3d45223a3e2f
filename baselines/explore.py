"""The cross product: any selection x routing x merge rule x gate x compensation, put together in YAML."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

import torch
from torch import Tensor

from baselines.merging import Absorbed, Gated, window_mass
from selkv.merge import cosine, gate_weight, nearest_kept, weighted_merge
from selkv.method import Method, PrefillView
from selkv.named import build, method_named
from selkv.routing import bucket_argmax, bucket_leaders, coattention, nearest_candidate, right_neighbour
from selkv.scores import indices, mask_of, top_mask
from selkv.state import Kept, LayerState, Needs, keep, take
from selkv.values import Cosine, Positive, Share


@dataclass(frozen=True)
class Merge(Gated):
    """Merge what another method evicts into what it keeps.

    Attributes
    ----------
    selection : Method, str or mapping
        The method whose sets are merged into: its name, the import path of its class, or a mapping of hyperparameters
        with the one or the other as ``_target_``. Its budgets over layers and heads and its index reuse are used too;
        what it does to the entries is not. The field holds the method once it is built.
    routing : str
        Which survivor takes an evicted entry: ``nearest_key`` by cosine; ``nearest_position``; ``right_neighbour``;
        ``bucket``: the most attended of its bucket (SelKV); ``coattention``: the one of its bucket that the window
        attends to together with it. Dropped where there is none.
    rule : str
        Weight of an evicted entry j next to its survivor i: ``mean``, 1 to 1; ``attention``, a_j to a_i (window);
        ``similarity``, max(cos of keys, 0) to 1; ``pivotal``, (x_j + x_i) / 2 with 1 to 1 (LOOK-M); ``norm``, kvpress's
        MergingPress: similarity times |v_j| / (|v_j| + |v_i|), to 1.
    merge_keys : bool
        Whether keys are merged too; kept as they are otherwise.
    threshold : float
        Least cosine of the two keys for a merge; -1 for all.
    fraction : float
        Share of those that is merged, the most similar first.
    bucket : int
        Positions of a bucket.
    """

    selection: Method | str | Mapping[str, Any] = "snapkv"
    routing: Literal["nearest_key", "nearest_position", "right_neighbour", "bucket", "coattention"] = "nearest_key"
    rule: Literal["mean", "attention", "similarity", "pivotal", "norm"] = "attention"
    merge_keys: bool = False
    threshold: Cosine = -1.0
    fraction: Share = 1.0
    bucket: Positive = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "selection", _method(self.selection))

    @property
    def selector(self) -> Method:
        """The method behind `selection`."""
        return cast(Method, self.selection)

    def needs(self, n: int, budget: int) -> Needs:
        """What the selection needs, and the window."""
        return self.selector.needs(n, budget).union(Needs(window=self.window))

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Those of the selection."""
        return self.selector.budgets(prefill, ratio)

    def leader(self, layer: int) -> int:
        """That of the selection."""
        return self.selector.leader(layer)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Select, route, merge, compensate."""
        chosen = self.selector.compress(layer, budget)
        if chosen.entries == layer.kv_heads * layer.n:
            return chosen
        kept = kept_mask(chosen.positions, layer)
        index, lengths = indices(kept)
        return self.finish(layer, keep(layer, index, lengths), index, self._absorb(layer, kept))

    def _absorb(self, layer: LayerState, kept: Tensor) -> Absorbed:
        target, found = self._route(layer, kept)
        similarity = cosine(layer.keys, take(layer.keys, target))
        routed = found & ~kept & (similarity >= self.threshold)
        if self.fraction < 1:
            count = ((~kept).sum(-1) * self.fraction).long()
            routed &= top_mask(similarity.masked_fill(~routed, -2.0), count)
        gated = routed * gate_weight(layer.values, target, self.gate)
        own, weight = self._weights(layer, target, similarity)

        def merged(x: Tensor) -> Tensor:
            sources = (x.float() + take(x, target).float()) / 2 if self.rule == "pivotal" else x
            return weighted_merge(x, own, target, gated * weight, sources=sources)

        keys = merged(layer.keys) if self.merge_keys else layer.keys
        return Absorbed(keys, merged(layer.values), target, gated, routed)

    def _route(self, layer: LayerState, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Target (Hkv, n) of each entry, and whether it has one."""
        if self.routing == "nearest_key":
            index, lengths = indices(kept)
            target, _ = nearest_kept(layer.keys, index, lengths=lengths)
            return target, torch.ones_like(kept)
        if self.routing == "nearest_position":
            return nearest_candidate(kept), torch.ones_like(kept)
        if self.routing == "right_neighbour":
            return right_neighbour(kept)
        if self.routing == "bucket":
            return bucket_leaders(window_mass(layer, self.window), kept, self.bucket)
        pairs = coattention(layer.window_attention(self.window), layer.kv_heads, self.bucket)
        return bucket_argmax(pairs, kept, self.bucket)

    def _weights(self, layer: LayerState, target: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """Weight of each entry in its own slot, and in its target's."""
        ones = torch.ones_like(similarity)
        if self.rule == "attention":
            mass = window_mass(layer, self.window)
            return mass, mass
        if self.rule == "similarity":
            return ones, similarity.clamp(min=0)
        if self.rule == "norm":
            norm = layer.values.float().norm(dim=-1)
            return ones, similarity.clamp(min=0) * norm / (norm + take(norm, target) + 1e-6)
        return ones, ones


def kept_mask(positions: Tensor, layer: LayerState) -> Tensor:
    """Entries (Hkv, n), bool, at the kept prompt positions (Hkv, m); -1 is padding."""
    entry = torch.where(positions < 0, layer.n, positions - layer.positions[0])
    return mask_of(entry, layer.n + 1)[:, : layer.n]


def _method(given: Method | str | Mapping[str, Any]) -> Method:
    """A method from what a config says of it."""
    if isinstance(given, Method):
        return given
    options: dict[str, Any] = {"_target_": given} if isinstance(given, str) else dict(given)
    target = str(options.pop("_target_", ""))
    if "." in target:
        return build("merge, selection", target, options)
    return method_named(target, **options)
