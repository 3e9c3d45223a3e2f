"""Merging operators: the soft cosine gate, and weighted merges that all happen at once from pre-merge tensors.

Everything in float32; the caller casts once at the end. A target index is the entry (of all n) that takes the evicted
entry; weight 0 means that nothing is merged (kept entries, dropped ones).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from selkv.scores import indices, mask_of
from selkv.state import take


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Cosine along the last axis in float32, exactly 0 where either vector is zero."""
    x, y = x.float(), y.float()
    dot, norm = torch.einsum("...d,...d->...", x, y), x.norm(dim=-1) * y.norm(dim=-1)
    # squares of tiny or huge entries leave float32: those rows, rare beyond zeros, again in float64
    odd = ~((norm > 1e-24) & (norm < 1e24))
    if bool(odd.any()):
        wide, other = x[odd].double(), y[odd].double()
        length = wide.norm(dim=-1) * other.norm(dim=-1)
        exact = torch.linalg.vecdot(wide, other) / torch.where(length > 0, length, 1.0)
        return (dot / norm).masked_scatter(odd, exact.float()).clamp(-1, 1)
    return (dot / norm).clamp(-1, 1)


def gate_weight(values: Tensor, target: Tensor, gate: str | float | None) -> Tensor:
    """How far each entry agrees with its target (SelKV Eq. 4).

    Parameters
    ----------
    values : Tensor, (Hkv, n, d)
        Raw values, before any merge.
    target : Tensor, (Hkv, n), int64
    gate : str, float or None
        ``cosine``: g = max(cos(v_j, v_target), 0); a number t: the hard threshold g = [cos >= t]; None or ``none``: 1.

    Returns
    -------
    Tensor, (Hkv, n), float32, in [0, 1]
    """
    if gate is None or gate == "none":
        return torch.ones(target.shape, device=values.device)
    return gate_between(values, take(values, target), gate)


def gate_between(values: Tensor, targets: Tensor, gate: str | float | None) -> Tensor:
    """`gate_weight` of values (..., d) and their targets' values (..., d); (...), float32."""
    if gate is None or gate == "none":
        return torch.ones(values.shape[:-1], device=values.device)
    agreement = cosine(values, targets)
    return agreement.clamp(min=0) if gate == "cosine" else (agreement >= float(gate)).float()


def scatter_sum(weight: Tensor, target: Tensor, x: Tensor | None = None) -> Tensor:
    """Sum of weight_j (times x_j) over the entries j of each target; (Hkv, n) or (Hkv, n, d), float32."""
    if x is None:
        return torch.zeros_like(weight).scatter_add(1, target, weight)
    moved = weight[..., None] * x.float()
    return torch.zeros_like(moved).scatter_add(1, target[..., None].expand_as(moved), moved)


def weighted_merge(
    x: Tensor, own: Tensor, target: Tensor, weight: Tensor, mass: Tensor | None = None, sources: Tensor | None = None
) -> Tensor:
    """Merge entries into their targets, all at once: x_i' = (own_i x_i + sum_j weight_j y_j) / (own_i + sum_j mass_j).

    Parameters
    ----------
    x : Tensor, (Hkv, n, d)
        Keys or values before the merge.
    own : Tensor, (Hkv, n)
        Weight of each entry in its own slot.
    target : Tensor, (Hkv, n), int64
    weight : Tensor, (Hkv, n)
        Weight of each entry in its target's sum; 0 where it is not merged.
    mass : Tensor, (Hkv, n), optional
        What it adds to the denominator where that differs from `weight`; 0 where it is not merged.
    sources : Tensor, (Hkv, n, d), optional
        What is added instead of `x` (LOOK-M's pivotal merge adds the mean of source and target).

    Returns
    -------
    Tensor, (Hkv, n, d), float32
        Entries that received nothing are returned bit for bit.
    """
    received = scatter_sum(weight if mass is None else mass, target)
    total = own + received
    numerator = own[..., None] * x.float() + scatter_sum(weight, target, x if sources is None else sources)
    arrived = (weight != 0) if mass is None else (weight != 0) | (mass != 0)
    touched = (scatter_sum(arrived.float(), target) > 0) & (total != 0)
    merged = numerator / torch.where(touched, total, torch.ones_like(total))[..., None]
    return torch.where(touched[..., None], merged, x.float())


def sum_by_target(x: Tensor, weight: Tensor, target: Tensor, index: Tensor) -> Tensor:
    """Weighted sum of all entries that go to each of some targets, in a fixed order: the same bits on every run.

    Parameters
    ----------
    x : Tensor, (Hkv, n, d)
    weight : Tensor, (Hkv, n), float32
    target : Tensor, (Hkv, n), int64
    index : Tensor, (Hkv, m), int64
        The targets that are wanted.

    Returns
    -------
    Tensor, (Hkv, m, d), float32
    """
    bags = torch.arange(index.numel(), device=index.device).view_as(index)
    bag, order = torch.full_like(target, index.numel()).scatter_(1, index, bags).gather(1, target).flatten().sort()
    edges = torch.searchsorted(bag, torch.arange(index.numel() + 1, device=index.device))
    order = order[: int(edges[-1])]
    table, weights = x.reshape(-1, x.shape[-1]).float(), weight.flatten()[order]
    summed = F.embedding_bag(order, table, edges, mode="sum", per_sample_weights=weights, include_last_offset=True)
    return summed.view(*index.shape, -1)


def absorb(
    values: Tensor,
    attention: Tensor,
    index: Tensor,
    target: Tensor,
    routed: Tensor,
    gate: str | float | None,
    block: int = 2**13,
) -> tuple[Tensor, Tensor]:
    """Gate routed entries and merge them into the kept ones by attention (SelKV Eqs. 4 and 5).

    The same as `gate_weight` and `weighted_merge` with own = attention and weight = gate * attention. Only what is
    routed is compared, in blocks: no copy of all values is made but the one that half precision needs.

    Parameters
    ----------
    values : Tensor, (Hkv, n, d)
        Before the merge.
    attention : Tensor, (Hkv, n), float32
        Non-negative weight of each entry.
    index : Tensor, (Hkv, m), int64
        Kept entries.
    target : Tensor, (Hkv, n), int64
        A kept entry where `routed`; kept entries go to themselves.
    routed : Tensor, (Hkv, n), bool
    gate : str, float or None
        As in `gate_weight`.
    block : int
        Entries compared at once.

    Returns
    -------
    merged : Tensor, (Hkv, m, d), float32
        Entries that received nothing are returned bit for bit.
    gate : Tensor, (Hkv, n), float32
        0 where not routed.
    """
    heads, entries = routed.nonzero(as_tuple=True)
    values = values.float()
    blocks = zip(heads.split(block), entries.split(block), target[routed].split(block), strict=True)
    agreement = [gate_between(values[head, entry], values[head, goal], gate) for head, entry, goal in blocks]
    weight = torch.zeros_like(attention).masked_scatter(routed, torch.cat(agreement))
    given = weight * attention
    own, mass, received = take(values, index).float(), take(attention, index), take(scatter_sum(given, target), index)
    summed = sum_by_target(values, given.scatter(1, index, mass), target, index)
    touched = received > 0
    summed.div_((mass + received).masked_fill_(~touched, 1)[..., None])
    return torch.where(touched[..., None], summed, own, out=own), weight


def arrival(target: Tensor, routed: Tensor) -> Tensor:
    """Rank among the entries that go to the same target, by position from 1; 0 where not routed; (Hkv, n), int64."""
    n = target.shape[1]
    goal, order = target.masked_fill(~routed, n).sort(dim=-1, stable=True)
    rank = torch.arange(1, n + 1, device=target.device) - torch.searchsorted(goal, goal)
    return torch.zeros_like(target).scatter(1, order, rank).masked_fill(~routed, 0)


def in_turns(target: Tensor, turn: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Pairs of source and target for merges that must come one after the other.

    Parameters
    ----------
    target : Tensor, (Hkv, n), int64
    turn : Tensor, (Hkv, n), int64
        When each entry is merged, from 1; 0 for never. Within a turn no target repeats.

    Returns
    -------
    list of (Tensor, Tensor)
        Of each turn: indices of the sources and their targets in the flattened (Hkv * n) entries.
    """
    heads, n = target.shape
    flat = (target + torch.arange(heads, device=target.device)[:, None] * n).flatten()
    idle, *sizes = torch.bincount(turn.flatten(), minlength=1).tolist()
    sources = turn.flatten().sort(stable=True).indices[idle:]
    return list(zip(sources.split(sizes), flat[sources].split(sizes), strict=True))


def nearest_kept(
    keys: Tensor, kept: Tensor, reach: int | None = None, lengths: Tensor | None = None, block: int = 256
) -> tuple[Tensor, Tensor]:
    """Kept entry whose key is most similar to each evicted entry's key; kept entries go to themselves.

    Parameters
    ----------
    keys : Tensor, (Hkv, n, d)
        Cached (post-RoPE) keys.
    kept : Tensor, (Hkv, m), int64
        Kept entries, ascending.
    reach : int, optional
        Only kept entries at most so many entries away.
    lengths : Tensor, (Hkv,), optional
        Number of true entries in each row of `kept`; the rest is padding.
    block : int
        Entries compared at once: memory is O(block * m), never n * m.

    Returns
    -------
    target : Tensor, (Hkv, n), int64
        Index (of the n entries) of the most similar kept one; ties: lower index.
    similarity : Tensor, (Hkv, n), float32
        Its cosine; 0 for zero keys, 1 for kept entries, -inf where no kept entry is within reach.
    """
    n = keys.shape[1]
    unit = F.normalize(keys.float(), dim=-1, eps=1e-30)
    centres = take(unit, kept).transpose(1, 2)
    padding = torch.zeros_like(kept, dtype=torch.bool)
    if lengths is not None:
        padding = torch.arange(kept.shape[1], device=keys.device) >= lengths[:, None]
    own = mask_of(kept.masked_fill(padding, n), n + 1)[:, :n]
    evicted, _ = indices(~own)
    ragged = bool(padding.any())
    best = []
    for entries in evicted.split(block, 1):
        cosines = (take(unit, entries) @ centres).clamp_(-1, 1)
        if ragged:
            cosines.masked_fill_(padding[:, None], float("-inf"))
        if reach is not None:
            cosines.masked_fill_((kept[:, None] - entries[..., None]).abs() > reach, float("-inf"))
        best.append(cosines.max(-1))
    target = take(kept, torch.cat([b.indices for b in best], 1))
    similarity = torch.cat([b.values for b in best], 1)
    itself = torch.arange(n, device=keys.device).expand(keys.shape[:2])
    # heads with fewer evicted entries than others ask for some kept ones, too: those stay with themselves
    similarity = torch.ones_like(unit[..., 0]).scatter(1, evicted, similarity).masked_fill(own, 1)
    return torch.where(own, itself, itself.scatter(1, evicted, target)), similarity
