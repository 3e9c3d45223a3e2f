"""Routing: which kept entry of its bucket takes an evicted one (SelKV Eq. 3, in three readings)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from selkv.scores import group_reduce
from selkv.state import LayerState


def bucketed(x: Tensor, bucket: int, fill: float) -> Tensor:
    """Cut the last axis into positional buckets: (..., n) to (..., buckets, B), padded with `fill`."""
    return F.pad(x, (0, -x.shape[-1] % bucket), value=fill).unflatten(-1, (-1, bucket))


def bucket_leaders(affinity: Tensor, candidates: Tensor, bucket: int) -> tuple[Tensor, Tensor]:
    """The candidate of each entry's bucket with the largest affinity; ties: lower index.

    Parameters
    ----------
    affinity : Tensor, (Hkv, n), float32
        Non-negative; the same for every entry that asks (window routing).
    candidates : Tensor, (Hkv, n), bool
        Kept entries that may be targets.
    bucket : int

    Returns
    -------
    target : Tensor, (Hkv, n), int64
    found : Tensor, (Hkv, n), bool
        False where the bucket holds no candidate; the target is then meaningless.
    """
    n = affinity.shape[-1]
    best, where = bucketed(affinity.masked_fill(~candidates, -1.0), bucket, -1.0).max(-1)
    start = torch.arange(best.shape[-1], device=affinity.device) * bucket
    target = (where + start).repeat_interleave(bucket, -1)[..., :n]
    found = (best >= 0).repeat_interleave(bucket, -1)[..., :n]
    return target.clamp(max=n - 1), found


def bucket_argmax(affinity: Tensor, candidates: Tensor, bucket: int) -> tuple[Tensor, Tensor]:
    """As `bucket_leaders` where each entry has affinities of its own to its bucket's entries.

    Parameters
    ----------
    affinity : Tensor, (Hkv, n, B), float32
        Row j: affinity of entry j to entry (j // B) * B + t; negative where it may not be taken.
    candidates : Tensor, (Hkv, n), bool
    bucket : int
    """
    n = affinity.shape[1]
    allowed = bucketed(candidates.to(torch.uint8), bucket, 0).bool().repeat_interleave(bucket, 1)[:, :n]
    best, where = affinity.masked_fill(~allowed, -1.0).max(-1)
    start = torch.arange(n, device=affinity.device) // bucket * bucket
    return (where + start).clamp(max=n - 1), best >= 0


def coattention(window_attention: Tensor, kv_heads: int, bucket: int) -> Tensor:
    """How much the window queries attend to two entries of a bucket together: sum_q A[q,j] A[q,i].

    Parameters
    ----------
    window_attention : Tensor, (H, W, n), float32
    kv_heads : int
    bucket : int

    Returns
    -------
    Tensor, (Hkv, n, B)
    """
    n = window_attention.shape[-1]
    cut = bucketed(group_reduce(window_attention, kv_heads), bucket, 0.0)  # (Hkv, W, buckets, B)
    pairs = torch.einsum("hqbs,hqbt->hbst", cut, cut)
    return pairs.flatten(1, 2)[:, :n]


def literal(layer: LayerState, bucket: int) -> Tensor:
    """Attention that entry j itself paid to the earlier entries of its bucket (Eq. 3 as printed); (Hkv, n, B).

    -1 where the entry is not earlier: only i < j is possible.
    """
    n = layer.n
    own = group_reduce(layer.block_attention[bucket], layer.kv_heads)
    offset = torch.arange(n, device=own.device) % bucket
    earlier = torch.arange(bucket, device=own.device) < offset[:, None]
    return own.masked_fill(~earlier, -1.0)


def nearest_candidate(candidates: Tensor) -> Tensor:
    """Positionally nearest candidate of each entry; ties: the lower one; (Hkv, n), int64.

    Every head has at least one candidate.
    """
    n = candidates.shape[-1]
    index = torch.arange(n, device=candidates.device).expand_as(candidates)
    before = torch.where(candidates, index, -1).cummax(-1).values
    after = torch.where(candidates, index, 2 * n).flip(-1).cummin(-1).values.flip(-1)
    use_before = (before >= 0) & ((index - before <= after - index) | (after >= n))
    return torch.where(use_before, before, after)


def right_neighbour(candidates: Tensor) -> tuple[Tensor, Tensor]:
    """First candidate to the right of each entry (itself where it is one).

    Returns
    -------
    target : Tensor, (Hkv, n), int64
    found : Tensor, (Hkv, n), bool
        False where there is none; the target is then the last entry.
    """
    n = candidates.shape[-1]
    index = torch.arange(n, device=candidates.device).expand_as(candidates)
    target = torch.where(candidates, index, n).flip(-1).cummin(-1).values.flip(-1)
    return target.clamp(max=n - 1), target < n


def strongest_candidate(attention: Tensor, candidates: Tensor) -> Tensor:
    """The candidate with the largest attention of all, for every entry; ties: lower index; (Hkv, n), int64."""
    leader = attention.masked_fill(~candidates, -1.0).max(-1, keepdim=True).indices
    return leader.expand_as(attention)


def own_or(target: Tensor, found: Tensor) -> Tensor:
    """Targets, with every entry pointing to itself where it has none."""
    return torch.where(found, target, torch.arange(target.shape[-1], device=target.device).expand_as(target))
