"""SelKV once more, in float64 and plain loops, straight from the equations: nothing shared with the fast code."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selkv.selkv import SelKV


class Slow(NamedTuple):
    """What the loops give: kept entries of each head, merged values, bias, R before reduction, targets (-1: none)."""

    kept: list[list[int]]
    values: list[list[Tensor]]
    bias: list[list[float]]
    ratio: list[list[float]]
    target: list[list[int]]
    gate: list[list[float]]
    union: int


def attention_of(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """Causal attention of all queries (H, n, d) on all keys (Hkv, n, d), row by row; (H, n, n) in float64."""
    heads, n, _ = queries.shape
    out = torch.zeros(heads, n, n, dtype=torch.float64)
    for h in range(heads):
        key = keys[h // (heads // len(keys))].double()
        for q in range(n):
            out[h, q, : q + 1] = (key[: q + 1] @ queries[h, q].double() * scale).softmax(0)
    return out


def best(scores: list[float], count: int) -> list[int]:
    """Indices of the largest scores, ascending; ties: lower index."""
    return sorted(sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:count])


def pooled(scores: list[float], kernel: int) -> list[float]:
    """Mean over a centred window, zeros beyond the ends counted."""
    reach = kernel // 2
    return [sum(scores[max(0, j - reach) : j + reach + 1]) / kernel for j in range(len(scores))]


def length(v: Tensor, kind: str) -> float:
    return {"none": 1.0, "l1": float(v.abs().sum()), "l2": math.sqrt(float((v * v).sum()))}[kind]


def cosine(x: Tensor, y: Tensor) -> float:
    norms = length(x, "l2") * length(y, "l2")
    return float((x * y).sum()) / norms if norms else 0.0


def slow_selkv(attention: Tensor, values: Tensor, m: int, method: SelKV) -> Slow:
    """Compress from full attention (H, n, n) and values (Hkv, n, d) to m entries a head."""
    kv_heads, n, _ = values.shape
    values = values.double()
    groups = attention.unflatten(0, (kv_heads, -1))
    window = min(method.window, n)
    reduce = (lambda x: x.mean(0)) if method.gqa_reduce == "mean" else (lambda x: x.amax(0))
    seen = [reduce(group)[n - window :] for group in groups]  # (W, n) a head
    a = [[sum(float(seen[h][q, j]) for q in range(window)) for j in range(n)] for h in range(kv_heads)]
    if method.normalise_by_visibility:
        a = [[a[h][j] / min(window, n - j) for j in range(n)] for h in range(kv_heads)]
    kept, own, union = choose(a, values, m, method, shared_set(method, len(attention), kv_heads))
    target = [
        [
            -1 if j in kept[h] else route(h, j, a[h], seen[h], groups[h].mean(0), kept[h], own[h], n, method)
            for j in range(n)
        ]
        for h in range(kv_heads)
    ]
    gate = [
        [gate_of(values[h, j], values[h, target[h][j]], method) if target[h][j] >= 0 else 0.0 for j in range(n)]
        for h in range(kv_heads)
    ]
    if not method.merge:
        gate = [[0.0] * n for _ in range(kv_heads)]
    merged, ratio = [], []
    for h in range(kv_heads):
        row, r = [], []
        for i in kept[h]:
            sources = [j for j in range(n) if target[h][j] == i]
            mass = sum(gate[h][j] * a[h][j] for j in sources)
            total = a[h][i] + mass
            moved = sum((gate[h][j] * a[h][j] * values[h, j] for j in sources), a[h][i] * values[h, i])
            row.append(moved / total if mass > 0 else values[h, i])
            r.append(1 + mass / max(a[h][i], method.eps))
        merged.append(row)
        ratio.append(r)
    bias = biases(ratio, method, shared_set(method, len(attention), kv_heads))
    return Slow(kept, merged, bias, ratio, target, gate, union)


def shared_set(method: SelKV, heads: int, kv_heads: int) -> bool:
    return heads > kv_heads if method.selection_scope == "auto" else method.selection_scope != "per_head"


def choose(
    a: list[list[float]], values: Tensor, m: int, method: SelKV, shared: bool
) -> tuple[list[list[int]], list[list[int]], int]:
    """Kept entries, each head's own best with the recent ones, and the size of the union before the trim."""
    kv_heads, n = len(a), len(a[0])
    recent = min(method.recent, m)
    c, wanted = n - recent, m - recent
    scores = []
    for h in range(kv_heads):
        norm = [length(values[h, j], method.value_norm) for j in range(n)]
        region = c if method.pool_region == "candidates" else n
        if method.pool_on == "score":
            row = pooled([a[h][j] * norm[j] for j in range(region)], method.kernel)
        else:
            row = [x * norm[j] for j, x in enumerate(pooled(a[h][:region], method.kernel))]
        scores.append([math.inf if j < min(method.sinks, wanted) else row[j] for j in range(c)])
    top = [best(row, wanted) for row in scores]
    tail = list(range(c, n))
    own = [row + tail for row in top]
    union = sorted(set().union(*top))
    if not shared:
        return own, own, len(union)
    pool = union if method.selection_scope != "shared_mean" else list(range(c))
    mean = [sum(row[j] for row in scores) / kv_heads for j in pool]
    return [[pool[i] for i in best(mean, wanted)] + tail] * kv_heads, own, len(union)


def route(
    h: int,
    j: int,
    a: list[float],
    seen: Tensor,
    full: Tensor,
    kept: list[int],
    own: list[int],
    n: int,
    method: SelKV,
) -> int:
    """Target of evicted entry j, -1 where it is dropped."""
    able = [i for i in kept if method.route_within == "shared" or i in own]
    if method.targets == "no_recent":
        able = [i for i in able if i < n - method.recent]
    elif method.targets == "no_sink":
        able = [i for i in able if i > 0]
    near = [i for i in able if i // method.bucket == j // method.bucket]
    affinity: dict[int, float]
    if method.routing == "window":
        affinity = {i: a[i] for i in near}
    elif method.routing == "coattention":
        affinity = {i: sum(float(row[j]) * float(row[i]) for row in seen) for i in near}
    else:
        affinity = {i: float(full[j, i]) for i in near if i < j}
    if affinity:
        return max(affinity, key=lambda i: (affinity[i], -i))
    if method.empty_bucket == "drop" or not able:
        return -1
    if method.empty_bucket == "nearest":
        return min(able, key=lambda i: (abs(i - j), i))
    return max(able, key=lambda i: (a[i], -i))


def gate_of(v: Tensor, goal: Tensor, method: SelKV) -> float:
    if method.gate == "none":
        return 1.0
    agreement = cosine(v, goal)
    return max(agreement, 0.0) if method.gate == "cosine" else float(agreement >= float(method.gate))


def biases(ratio: list[list[float]], method: SelKV, shared: bool) -> list[list[float]]:
    most = math.inf if method.max_log_ratio is None else method.max_log_ratio
    logs = [[min(math.log(r), most) for r in row] for row in ratio]
    if shared and method.ratio_reduce != "none":
        columns: list[Any] = list(zip(*logs, strict=True))
        if method.ratio_reduce == "mean":
            mean = [math.log(sum(math.exp(x) for x in column) / len(column)) for column in columns]
        else:
            mean = [sum(column) / len(column) for column in columns]
        logs = [mean] * len(ratio)
    return [[method.alpha * x for x in row] for row in logs]
