"""KVMerger (arXiv 2407.08454): runs of neighbours with similar keys merge into the most attended one of the run."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from baselines.merging import Absorbed, Merging, heavy, received
from selkv.merge import cosine, gate_weight, scatter_sum, weighted_merge
from selkv.scores import last, mask_of, rank, top, top_mask
from selkv.state import LayerState, take
from selkv.values import MOST, Cosine, Count, Share


@dataclass(frozen=True)
class KVMerger(Merging):
    """KVMerger with exactly m entries: the n - m most similar links between neighbours are merged.

    No official code exists: sets, kernel and shares are from secondary sources.

    Attributes
    ----------
    recent, heavy : float or None
        Last and most attended entries that no link may touch, as shares of the prompt; None: 0.17 and 0.12 where at
        least half of it is kept, 0.08 and 0.02 below. At most half of the budget together.
    sinks : int
        First entries that no link may touch (0: sinks are among the most attended).
    sigma_mode : str
        Width of the Gaussian kernel on key distances: ``fixed`` (`sigma`); ``rms``, the root mean squared distance of a
        set's members to its pivot; ``fixed_point``, the paper's circular mean(kernel) / sqrt(2).
    sigma : float
        5, the paper's grid search.
    value_scale : str
        ``convex``, or ``set_size``: values times the size of the set, as printed.
    mode : str
        ``budget``, or ``on_evicted``: survivors are the protected and the most attended entries, and an evicted one
        merges where its run (links above `threshold`) holds a survivor.
    threshold : float
        0.75, for ``on_evicted``.
    gate_keys : bool
        Whether the gate also weighs keys.
    """

    recent: Share | None = None
    heavy: Share | None = None
    sinks: Count = 0
    sigma_mode: Literal["fixed", "rms", "fixed_point"] = "fixed"
    sigma: Annotated[float, Field(gt=0, le=MOST)] = 5.0
    value_scale: Literal["convex", "set_size"] = "convex"
    mode: Literal["budget", "on_evicted"] = "budget"
    threshold: Cosine = 0.75
    gate_keys: bool = True

    def survivors(self, layer: LayerState, m: int) -> Tensor:
        """Pivots of the sets; the most attended entries in ``on_evicted`` mode."""
        attention = received(layer, self.score_queries, self.window)
        recent, heavies = self._shares(layer.n, m)
        if self.mode == "on_evicted":
            return heavy(attention, m, self.sinks, recent)
        run = runs(exact_links(layer.keys, attention, self._protection(attention, recent, heavies), layer.n - m))
        pivot, _ = leaders(attention, run, torch.ones_like(attention, dtype=torch.bool))
        return top((pivot == torch.arange(layer.n, device=pivot.device)).float(), m)

    def absorb(self, layer: LayerState, index: Tensor) -> Absorbed:
        """Gaussian-weighted means around the pivots."""
        n, m = layer.n, index.shape[1]
        attention = received(layer, self.score_queries, self.window)
        kept = mask_of(index, n)
        protection = self._protection(attention, *self._shares(n, m))
        if self.mode == "on_evicted":
            links = link_similarity(layer.keys) > self.threshold
        else:
            links = exact_links(layer.keys, attention, protection, n - m)
        target, found = leaders(attention, runs(links), kept)
        routed = found & ~kept
        distance = (layer.keys.float() - take(layer.keys.float(), target)).square().sum(-1)
        gaussian = torch.where(routed, kernel(distance, target, routed, self.sigma_mode, self.sigma), 0.0)
        gate = gate_weight(layer.values, target, self.gate) * routed
        own = torch.ones_like(attention)
        values = weighted_merge(layer.values, own, target, gate * gaussian)
        if self.value_scale == "set_size":
            values = values * (1 + scatter_sum(gate, target))[..., None]
        keys = weighted_merge(layer.keys, own, target, gaussian * gate if self.gate_keys else gaussian)
        return Absorbed(keys, values, target, gate, routed)

    def _shares(self, n: int, m: int) -> tuple[int, int]:
        """Recent and heavy entries that no link may touch."""
        published = (0.17, 0.12) if 2 * m >= n else (0.08, 0.02)
        recent, heavies = (
            int(given * n + 1e-9) if given < 1 else int(given)
            for given in (
                default if share is None else share
                for share, default in zip((self.recent, self.heavy), published, strict=True)
            )
        )
        recent = min(recent, m // 2)
        return recent, min(heavies, m // 2 - recent)

    def _protection(self, attention: Tensor, recent: int, heavies: int) -> Tensor:
        n = attention.shape[1]
        always = last(n, recent, attention.device) | ~last(n, n - self.sinks, attention.device)
        return always | top_mask(attention.masked_fill(always, -1.0), heavies)


def link_similarity(keys: Tensor) -> Tensor:
    """Cosine of each key with its right neighbour's; (Hkv, n - 1), float32."""
    return cosine(keys[:, :-1], keys[:, 1:])


def exact_links(keys: Tensor, attention: Tensor, protection: Tensor, count: int) -> Tensor:
    """The `count` most similar links between neighbours that touch no protected entry.

    Where those are too few, the least attended protected entries lose their protection, one after the other.

    Parameters
    ----------
    keys : Tensor, (Hkv, n, d)
    attention : Tensor, (Hkv, n)
    protection : Tensor, (Hkv, n), bool
    count : int
        1 to n - 1.

    Returns
    -------
    Tensor, (Hkv, n - 1), bool
        Exactly `count` links in each head.
    """
    # level 0: free; level u: free once the u least attended protected entries are
    order = rank(-attention.masked_fill(~protection, float("inf")))
    place = torch.arange(1, order.shape[1] + 1, device=order.device).expand_as(order)
    level = torch.zeros_like(order).scatter(1, order, place).masked_fill(~protection, 0)
    needed = torch.maximum(level[:, :-1], level[:, 1:])
    freed = needed.sort(-1).values[:, count - 1 : count]
    return top_mask(link_similarity(keys).masked_fill(needed > freed, -2.0), count)


def runs(links: Tensor) -> Tensor:
    """Index of the run that each entry belongs to, (Hkv, n): neighbours with a link share one."""
    return torch.nn.functional.pad((~links).long(), (1, 0)).cumsum(-1)


def leaders(attention: Tensor, run: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """The most attended candidate of each entry's run; ties: lower index.

    Returns
    -------
    target : Tensor, (Hkv, n), int64
    found : Tensor, (Hkv, n), bool
        False where the run holds no candidate; the target is then the entry itself.
    """
    n = run.shape[1]
    score = attention.masked_fill(~candidates, -1.0)
    best = torch.full_like(score, -1.0).scatter_reduce(1, run, score, "amax")
    place = torch.arange(n, device=run.device).expand_as(run)
    leading = torch.where(candidates & (score == take(best, run)), place, n)
    target = take(torch.full_like(run, n).scatter_reduce(1, run, leading, "amin"), run)
    return torch.where(target < n, target, place), target < n


def kernel(distance: Tensor, target: Tensor, routed: Tensor, mode: str, sigma: float, steps: int = 10) -> Tensor:
    """Gaussian of squared key distances (Hkv, n) to the pivots; its width by `mode`, see `KVMerger`."""
    size = 1 + scatter_sum(routed.float(), target)

    def mean(x: Tensor) -> Tensor:  # over each set; a pivot's own distance is 0
        return scatter_sum(x * routed, target) / size

    if mode == "fixed":
        return torch.exp(-distance / (2 * sigma**2))
    tiny = torch.finfo(torch.float32).tiny
    variance = take(mean(distance), target).clamp(min=tiny)
    for _ in range(steps if mode == "fixed_point" else 0):
        gaussian = torch.exp(-distance / (2 * variance))
        variance = take((mean(gaussian) + 1 / size).square() / 2, target).clamp(min=tiny)
    return torch.exp(-distance / (2 * variance))
