"""Operators on scores: group reduction, pooling, top-k with a stated tie rule, sets that differ by head."""

import torch
import torch.nn.functional as F
from torch import Tensor

from selkv.state import Kept, LayerState, keep


def group_reduce(scores: Tensor, kv_heads: int, how: str = "mean") -> Tensor:
    """Reduce scores of the query heads to their KV heads.

    Parameters
    ----------
    scores : Tensor, (H, ...)
        Query head h belongs to KV head h // (H // Hkv).
    kv_heads : int
    how : str
        ``mean``, ``max`` or ``sum``.

    Returns
    -------
    Tensor, (Hkv, ...)
    """
    grouped = scores.unflatten(0, (kv_heads, -1))
    return {"mean": grouped.mean, "sum": grouped.sum, "max": grouped.amax}[how](1)


def pool(scores: Tensor, kernel: int, mode: str = "avg") -> Tensor:
    """Smooth scores along the last axis, stride 1, same length.

    Parameters
    ----------
    scores : Tensor, (..., n)
    kernel : int
        Odd window; 1 changes nothing.
    mode : str
        ``avg`` pads with zeros that count in the divisor (so the ends are damped), ``max`` with padding that never
        wins.
    """
    if kernel == 1 or scores.shape[-1] == 0:
        return scores
    flat = scores.reshape(1, -1, scores.shape[-1])
    smooth = F.avg_pool1d if mode == "avg" else F.max_pool1d
    pooled = smooth(flat, kernel, stride=1, padding=kernel // 2)
    return pooled.view(scores.shape)


def rank(scores: Tensor) -> Tensor:
    """Entry indices by falling score along the last axis; ties: lower index first."""
    return scores.sort(dim=-1, descending=True, stable=True).indices


def top(scores: Tensor, k: int) -> Tensor:
    """Indices of the k largest scores along the last axis, ascending; ties: lower index first.

    Parameters
    ----------
    scores : Tensor, (..., n)
    k : int
        0 to n.

    Returns
    -------
    Tensor, (..., k), int64
    """
    return rank(scores)[..., :k].sort(-1).values


def mask_of(index: Tensor, n: int) -> Tensor:
    """Boolean set (Hkv, n) of the indices (Hkv, m)."""
    return torch.zeros(*index.shape[:-1], n, dtype=torch.bool, device=index.device).scatter_(-1, index, True)


def indices(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending indices of a set that may differ in size by head.

    Parameters
    ----------
    mask : Tensor, (Hkv, n), bool

    Returns
    -------
    index : Tensor, (Hkv, m), int64
        m is the largest size; what follows a head's true entries is padding.
    lengths : Tensor, (Hkv,), int64
        Number of true entries of each head.
    """
    lengths = mask.sum(-1)
    order = (~mask).to(torch.uint8).sort(dim=-1, stable=True).indices
    return order[..., : int(lengths.max())], lengths


def last(n: int, count: int, device: torch.device | None = None) -> Tensor:
    """Boolean set (n,) of the last `count` entries: the protected recent window."""
    return torch.arange(n, device=device) >= n - count


def protect(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with the entries of `mask` raised above every other."""
    return scores.masked_fill(mask, float("inf"))


def protected(budget: int, window: int) -> int:
    """Number of last entries that a window method keeps without scoring them.

    The whole window where the budget (entries of one head) exceeds it. The original codes refuse smaller budgets; here
    half of such a budget is recent and the rest competes.
    """
    return window if budget > window else max(1, budget // 2)


def spread(budget: int, heads: int, device: torch.device | None = None) -> Tensor:
    """Entries of each head, (heads,) int64: equal, and the lower heads take what does not divide."""
    return budget // heads + (torch.arange(heads, device=device) < budget % heads).long()


def top_mask(scores: Tensor, counts: Tensor | int) -> Tensor:
    """Boolean set of the best entries along the last axis; ties: lower index first.

    Parameters
    ----------
    scores : Tensor, (..., n)
    counts : Tensor, (...), int64, or int
        How many of each row.

    Returns
    -------
    Tensor, (..., n), bool
    """
    best = (
        torch.arange(scores.shape[-1], device=scores.device) < torch.as_tensor(counts, device=scores.device)[..., None]
    )
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, rank(scores), best.expand(scores.shape))


def keep_best(layer: LayerState, scores: Tensor, budget: int) -> Kept:
    """Keep the best entries of each head, `budget` in all.

    Parameters
    ----------
    layer : LayerState
    scores : Tensor, (Hkv, n) or (n,)
        inf where an entry is protected; one row serves all heads.
    budget : int
    """
    counts = spread(budget, layer.kv_heads, scores.device)
    return keep(layer, *indices(top_mask(scores.expand(layer.kv_heads, -1), counts)))
