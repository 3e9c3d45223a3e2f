"""Operators on scores: group reduction, pooling, top-k with a stated tie rule, sets that differ by head."""

import torch
import torch.nn.functional as F
from torch import Tensor


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
