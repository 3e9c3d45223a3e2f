"""The fast SelKV against plain loops in float64, on random shapes and under every switch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selkv.selkv import SelKV
from selkv.state import Kept, LayerState
from tests.baselines.layers import block_diagonal
from tests.selkv.slow_selkv import Slow, attention_of, slow_selkv

SWITCHES: dict[str, list[Any]] = {
    "selection_scope": ["auto", "shared_union_trim", "shared_mean", "per_head"],
    "gqa_reduce": ["mean", "max"],
    "pool_on": ["score", "attention"],
    "pool_region": ["candidates", "full"],
    "value_norm": ["l2", "l1", "none"],
    "normalise_by_visibility": [False, True],
    "routing": ["window", "coattention", "literal"],
    "targets": ["all", "no_recent", "no_sink"],
    "route_within": ["shared", "own"],
    "empty_bucket": ["drop", "nearest", "global"],
    "merge": [True, False],
    "gate": ["cosine", "none", 0.3],
    "alpha": [0.5, 0.0, 1.0],
    "ratio_reduce": ["mean", "logmean", "none"],
    "max_log_ratio": [None, 0.7],
    "sinks": [0, 1, 4],
    "kernel": [5, 1, 3],
    "bucket": [8, 1, 3, 32, 64],
}


def layer(n: int, kv_heads: int, group: int, method: SelKV, seed: int, d: int = 4) -> tuple[LayerState, torch.Tensor]:
    """A layer of small dyadic numbers, sharp enough to select, and its attention from loops."""
    draw = torch.Generator().manual_seed(seed)
    queries, keys, values = (torch.randn(h, n, d, generator=draw) for h in (kv_heads * group, kv_heads, kv_heads))
    attention = attention_of(1.5 * queries, keys, d**-0.5)
    blocks = {method.bucket: block_diagonal(attention, method.bucket).float()} if method.routing == "literal" else {}
    state = LayerState(
        keys=keys,
        values=values,
        queries=1.5 * queries[:, max(0, n - method.window) :],
        positions=torch.arange(n),
        scale=d**-0.5,
        block_attention=blocks,
    )
    return state, attention


def agree(fast: Kept, slow: Slow) -> None:
    assert fast.positions.tolist() == slow.kept
    values = torch.stack([torch.stack(row) for row in slow.values])
    for name, x, y in (("values", fast.values, values), ("bias", fast.bias, torch.tensor(slow.bias))):
        difference = (x.double() - y.double()).abs().max()
        assert difference < 1e-5 * max(1, float(y.abs().max())), f"{name} differ by {difference}"


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in SWITCHES.items() for v in values])
@pytest.mark.parametrize(("kv_heads", "group"), [(2, 1), (2, 3)])
def test_each_switch(name: str, value: Any, kv_heads: int, group: int) -> None:
    method = replace(SelKV(window=6, recent=4, bucket=8), **{name: value})
    for seed, m in ((0, 5), (1, 12)):
        state, attention = layer(37, kv_heads, group, method, seed)
        agree(method.compress(state, m * kv_heads), slow_selkv(attention, state.values, m, method))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    n=st.integers(2, 48),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 4, 8]),
    window=st.sampled_from([1, 8, 32]),
    recent=st.sampled_from([0, 4, 16]),
)
def test_random_shapes_and_switches(
    data: st.DataObject, n: int, kv_heads: int, group: int, window: int, recent: int
) -> None:
    chosen = {name: data.draw(st.sampled_from(values), label=name) for name, values in SWITCHES.items()}
    method = SelKV(window=window, recent=recent, **chosen)
    m = data.draw(st.integers(1, n - 1), label="m")
    state, attention = layer(n, kv_heads, group, method, seed=n)
    agree(method.compress(state, m * kv_heads), slow_selkv(attention, state.values, m, method))


def test_counters_count_what_the_loops_see() -> None:
    method = SelKV(window=6, recent=4, bucket=8, empty_bucket="drop")
    state, attention = layer(61, 2, 2, method, seed=3)
    slow, counters = slow_selkv(attention, state.values, 9, method), method.compress(state, 18).counters
    pairs = [(h, j) for h in range(2) for j in range(61) if j not in slow.kept[h]]
    routed = [(h, j) for h, j in pairs if slow.target[h][j] >= 0]
    gates = [slow.gate[h][j] for h, j in routed]
    assert 0 < len(routed) < len(pairs) and 0 in gates
    expected = {
        "routed": len(routed) / len(pairs),
        "dropped": 1 - len(routed) / len(pairs),
        "gate_zero": sum(g == 0 for g in gates) / len(gates),
        "mean_gate": sum(gates) / len(gates),
        "floored": 0,
        "max_log_ratio": float(torch.tensor(slow.ratio).max().log()),
        "union": slow.union,
        "evicted_first_share": float(attention[:, -6:, 0].mean()) if slow.kept[0][0] else 0.0,
    }
    assert dict(counters) == pytest.approx(expected, abs=1e-5)


def test_the_share_of_an_evicted_first_token_is_that_of_the_heads_that_lost_it() -> None:
    method = SelKV(window=5, recent=2, selection_scope="per_head", merge=False)
    state, attention = layer(30, 3, 2, method, seed=0)
    values = state.values.clone()
    values[0, :3] = 0  # head 0 has no use for the first tokens, head 1 every
    values[1, :3] = 100
    kept = method.compress(replace(state, values=values), 3 * 5)
    shares = attention[:, -5:, 0].unflatten(0, (3, 2)).mean((1, 2))
    lost = kept.positions[:, 0] != 0
    assert lost[0] and not lost[1]
    assert kept.counters["evicted_first_share"] == pytest.approx(float((shares * lost).mean()), abs=1e-6)
    later = replace(state, values=values, positions=torch.arange(30) + 7)  # position 0 had left a sliding window before
    assert method.compress(later, 3 * 5).counters["evicted_first_share"] == 0


def test_floored_attentions_are_counted_and_finite() -> None:
    method = SelKV(window=2, recent=1, bucket=4, gate="none", value_norm="none", sinks=1)
    state, _ = layer(8, 1, 1, method, seed=0)
    keys = torch.zeros(1, 8, 4)
    keys[0, 0] = -400  # kept as a sink, although no query sees it
    queries = torch.ones(1, 2, 4)
    kept = method.compress(replace(state, keys=keys, queries=queries), 3)
    assert kept.positions[0, 0] == 0 and kept.counters["floored"] == 1
    assert bool(kept.values.isfinite().all()) and bool(kept.bias.isfinite().all())
    assert kept.counters["max_log_ratio"] >= float(kept.bias.max()) / method.alpha - 1e-5
