"""What holds of SelKV whatever the numbers: budget, structure, merge algebra, compensation, invariances, ablation."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import Tensor

from selkv.compensate import votes
from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, greedy
from selkv.full import Full
from selkv.prefill import prefill
from selkv.selkv import SelKV
from selkv.state import Kept, LayerState, Needs
from tests.baselines.layers import random_layer
from tests.models import FAMILIES, build, tokens

METHODS = Path(__file__).resolve().parents[2] / "configs" / "method"
LAYER = Needs(window=32)
quick = settings(max_examples=40, deadline=None, derandomize=True)
shapes = given(
    seed=st.integers(0, 999),
    n=st.integers(20, 120),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 4]),
    share=st.floats(0.05, 0.9),
)


def random(seed: int, n: int, kv_heads: int, group: int, **fields: Any) -> LayerState:
    return random_layer(n, kv_heads * group, kv_heads, d=8, seed=seed, needs=LAYER, **fields)


def parts(method: SelKV, layer: LayerState, m: int) -> SimpleNamespace:
    """What the steps see on the way: attention a, kept mask, targets, routed mask, gates are left to the result."""
    a = method._attention(layer)
    index, own, _ = method._select(layer, a, m)
    kept = torch.zeros_like(a, dtype=torch.bool).scatter_(1, index, True)
    routes = method._route(layer, a, kept, own)
    return SimpleNamespace(a=a, index=index, kept=kept, target=routes.target, routed=routes.routed)


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | float, scale: float) -> Tensor:
    """Attention of (Hkv, d) queries on (Hkv, m, d) entries in float64."""
    logits = torch.einsum("hd,hmd->hm", query.double(), keys.double()) * scale + bias
    return torch.einsum("hm,hmd->hd", logits.softmax(-1), values.double())


# budget and structure (1 to 3)


@quick
@given(n=st.integers(1, 400), ratio=st.fractions(min_value=Fraction(1, 500), max_value=1), heads=st.integers(1, 3))
@example(n=50, ratio=Fraction("0.58"), heads=2)  # 29
@example(n=3500, ratio=Fraction("0.1"), heads=1)  # 350
@example(n=100, ratio=Fraction("0.29"), heads=2)  # 29, floats say 28
@example(n=16, ratio=Fraction("0.5"), heads=2)
@example(n=33, ratio=Fraction(1), heads=2)
def test_budget_is_exact_and_recent_entries_stay(n: int, ratio: Fraction, heads: int) -> None:
    layer = random(n, n, heads, 2)
    method = SelKV()
    budget = method.budgets(SimpleNamespace(layers=[layer]), ratio)[0]
    m = max(1, floor(ratio * n))
    assert budget == heads * m
    kept = method.compress(layer, budget)
    assert kept.positions.shape == (heads, m)
    assert bool((kept.positions.diff(dim=1) > 0).all())
    recent = min(16, m)
    assert torch.equal(kept.positions[:, m - recent :], torch.arange(n - recent, n).expand(heads, -1))
    assert torch.equal(kept.keys, layer.keys.gather(1, kept.positions[..., None].expand_as(kept.keys)))
    assert torch.equal(kept.positions[:1].expand(heads, -1), kept.positions)  # one set for all heads
    if m == n:
        assert torch.equal(kept.values, layer.values) and not kept.bias.any()


def test_named_budgets() -> None:
    for n, ratio, m in ((50, "0.58", 29), (3500, "0.1", 350)):
        layer = random(0, n, 2, 1)
        assert SelKV().budgets(SimpleNamespace(layers=[layer]), Fraction(ratio)) == [2 * m]


@quick
@shapes
def test_targets_are_kept_entries_of_the_same_bucket(
    seed: int, n: int, kv_heads: int, group: int, share: float
) -> None:
    m = max(1, int(share * n))
    for routing in ("window", "coattention"):
        method = SelKV(routing=routing)
        layer = random(seed, n, kv_heads, group)
        found = parts(method, layer, m)
        place = torch.arange(n)
        assert bool(found.kept.gather(1, found.target)[found.routed].all())
        assert bool((found.target // 32 == place // 32)[found.routed].all())
        assert not bool((found.routed & found.kept).any())
        occupied = torch.zeros(kv_heads, n // 32 + 1, dtype=torch.bool).scatter_(1, found.index // 32, True)
        assert torch.equal(found.routed, ~found.kept & occupied[:, place // 32])
        counters = method.compress(layer, m * kv_heads).counters
        assert counters["routed"] + counters["dropped"] == pytest.approx(1)


# merge algebra (4 to 10)


@quick
@shapes
def test_merged_values_stay_in_the_hull_of_their_sources(
    seed: int, n: int, kv_heads: int, group: int, share: float
) -> None:
    m = max(1, int(share * n))
    layer = random(seed, n, kv_heads, group)
    for gate in ("cosine", "none", 0.2):
        method = SelKV(gate=gate)
        found, kept = parts(method, layer, m), method.compress(layer, m * kv_heads)
        for h in range(kv_heads):
            for slot, i in enumerate(found.index[h].tolist()):
                sources = [j for j in range(n) if found.routed[h, j] and int(found.target[h, j]) == i]
                hull = layer.values[h, [i, *sources]]
                merged = kept.values[h, slot]
                assert bool((merged <= hull.amax(0) + 1e-5).all()) and bool((merged >= hull.amin(0) - 1e-5).all())
                assert merged.norm() <= hull.norm(dim=-1).max() + 1e-5
                if gate == "cosine":
                    assert merged @ layer.values[h, i] >= -1e-5
                if not sources:
                    assert torch.equal(merged, layer.values[h, i]) and (
                        len(layer.queries) > kv_heads or not kept.bias[h, slot]
                    )
        assert bool((kept.bias >= 0).all())


@quick
@shapes
def test_mass_is_conserved(seed: int, n: int, kv_heads: int, group: int, share: float) -> None:
    m = max(1, int(share * n))
    layer = random(seed, n, kv_heads, group)
    all_of_it = SelKV(gate="none", bucket=n, alpha=1, ratio_reduce="none")
    found, kept = parts(all_of_it, layer, m), all_of_it.compress(layer, m * kv_heads)
    total = (found.a.gather(1, found.index) * kept.bias.exp()).sum(1)
    torch.testing.assert_close(total, torch.full((kv_heads,), float(min(32, n))), rtol=1e-4, atol=1e-4)
    gated = SelKV(alpha=1, ratio_reduce="none")
    found, kept = parts(gated, layer, m), gated.compress(layer, m * kv_heads)
    agreement = torch.cosine_similarity(
        layer.values, layer.values.gather(1, found.target[..., None].expand_as(layer.values)), dim=-1
    )
    given_away = (agreement.clamp(min=0) * found.a * found.routed).sum(1)
    own = found.a.gather(1, found.index)
    torch.testing.assert_close((own * kept.bias.exp()).sum(1), own.sum(1) + given_away, rtol=1e-4, atol=1e-4)


def test_gate_shut_everywhere_is_eviction() -> None:
    layer, method = random(0, 90, 2, 2), SelKV(value_norm="none")
    found = parts(method, layer, 40)
    values = torch.ones_like(layer.values).masked_fill(~found.kept[..., None], -1.0) * layer.values[:, :1].abs()
    layer = replace(layer, values=values)  # every evicted value points away from every kept one
    kept, evicted = method.compress(layer, 80), replace(method, merge=False).compress(layer, 80)
    assert torch.equal(kept.values, evicted.values) and torch.equal(kept.keys, evicted.keys)
    assert torch.equal(kept.bias, torch.zeros(2, 40)) and torch.equal(kept.positions, evicted.positions)
    assert kept.counters["gate_zero"] == 1 and kept.counters["routed"] > 0


def test_equal_values_are_unchanged_while_their_weight_grows() -> None:
    layer = random(1, 96, 2, 2)
    bucket = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))
    values = bucket.repeat_interleave(32, 1)
    kept = SelKV(alpha=1).compress(replace(layer, values=values), 2 * 20)
    original = values.gather(1, kept.positions[..., None].expand_as(kept.values))
    torch.testing.assert_close(kept.values, original, rtol=1e-5, atol=1e-6)
    assert float(kept.bias.max()) > 0.5


def test_a_clamp_bounds_log_ratio_and_alpha_zero_means_no_bias() -> None:
    layer = random(2, 96, 2, 2)
    free, tight = SelKV(alpha=1).compress(layer, 40), SelKV(alpha=1, max_log_ratio=0.5).compress(layer, 40)
    assert float(free.bias.max()) > 0.5 >= float(tight.bias.max())
    assert not SelKV(alpha=0).compress(layer, 40).bias.any()


# invariances (8)


@quick
@shapes
def test_invariances(seed: int, n: int, kv_heads: int, group: int, share: float) -> None:
    m, method = max(1, int(share * n)), SelKV(ratio_reduce="none")
    layer = random(seed, n, kv_heads, group)
    kept = method.compress(layer, m * kv_heads)

    larger = method.compress(replace(layer, values=layer.values * 4), m * kv_heads)  # exact in binary
    assert torch.equal(larger.positions, kept.positions)
    torch.testing.assert_close(larger.values, 4 * kept.values)
    torch.testing.assert_close(larger.bias, kept.bias)

    order = torch.randperm(kv_heads, generator=torch.Generator().manual_seed(seed))
    queries = layer.queries.unflatten(0, (kv_heads, group))[order].flatten(0, 1)
    moved = method.compress(
        replace(layer, keys=layer.keys[order], values=layer.values[order], queries=queries), m * kv_heads
    )
    for x, y in zip(moved[:4], kept[:4], strict=True):
        torch.testing.assert_close(x, y[order], rtol=1e-4, atol=1e-5)

    found = parts(method, layer, m)
    if bool(found.routed.any()):
        h, j = found.routed.nonzero()[0].tolist()
        values = layer.values.clone()
        values[h, j] *= 8
        fixed = Fixed(ratio_reduce="none", index=found.index)  # the same set, as longer values are chosen sooner
        torch.testing.assert_close(
            fixed.compress(replace(layer, values=values), m * kv_heads).bias, kept.bias, rtol=1e-4, atol=1e-5
        )


@dataclass(frozen=True)
class Fixed(SelKV):
    """SelKV with a given kept set."""

    index: Tensor = field(default_factory=lambda: torch.empty(0))

    def _select(self, layer: LayerState, attention: Tensor, m: int) -> tuple[Tensor, Tensor, int]:
        return self.index, super()._select(layer, attention, m)[1], 0


def test_scaling_attention_changes_nothing() -> None:
    layer, method = random(3, 80, 2, 2), SelKV()
    scaled = replace(layer, memo={32: layer.window_attention(32) * 4})
    for x, y in zip(method.compress(layer, 40)[:4], method.compress(scaled, 40)[:4], strict=True):
        torch.testing.assert_close(x, y)


# compensation (11 to 14)


@quick
@given(
    seed=st.integers(0, 999),
    n=st.integers(2, 60),
    heads=st.integers(1, 3),
    share=st.floats(0.02, 0.98),
    routing=st.sampled_from(["window", "coattention"]),
)
def test_one_query_gets_the_full_attention_back(seed: int, n: int, heads: int, share: float, routing: str) -> None:
    # 11: with one window query, no gate, alpha 1 and nothing dropped, the merge is exact for that query
    m = min(n - 1, max(1, int(share * n)))
    layer = random(seed, n, heads, 1)
    method = SelKV(window=1, recent=1, gate="none", alpha=1, bucket=n, routing=routing, selection_scope="per_head")
    query = layer.queries[:, -1]
    full = attend(query, layer.keys, layer.values, 0.0, layer.scale)
    kept = method.compress(layer, heads * m)
    exact = (attend(query, kept.keys, kept.values, kept.bias, layer.scale) - full).abs().max()
    assert exact < 1e-5
    if m < n // 2:
        evicted = replace(method, merge=False).compress(layer, heads * m)
        assert (attend(query, evicted.keys, evicted.values, 0.0, layer.scale) - full).abs().max() > 100 * exact


@pytest.mark.parametrize("gate", ["none", "cosine"])
def test_duplicates_are_counted_exactly(gate: str) -> None:
    # 12 and 13: c identical entries become one with R = c, exact for any later query, and equal to KeepKV's votes
    copies, groups, d = 4, 12, 8
    draw = torch.Generator().manual_seed(7)
    keys, values = (torch.randn(1, groups, d, generator=draw).repeat_interleave(copies, 1) for _ in range(2))
    tail = torch.randn(3, 1, 2, d, generator=draw)
    n = copies * groups + 2
    layer = LayerState(
        keys=torch.cat([keys, tail[0]], 1),
        values=torch.cat([values, tail[1]], 1),
        queries=tail[2],
        positions=torch.arange(n),
        scale=d**-0.5,
    )
    index = torch.cat([torch.arange(0, copies * groups, copies), torch.arange(n - 2, n)])[None]
    method = Fixed(index=index, window=2, recent=2, bucket=copies, gate=gate, alpha=1.0)
    kept = method.compress(layer, index.shape[1])
    torch.testing.assert_close(kept.bias[0, :groups].exp(), torch.full((groups,), float(copies)))
    assert not kept.bias[0, groups:].any()
    target = torch.arange(n) // copies * copies
    target[-2:] = torch.arange(n - 2, n)
    weight = (target != torch.arange(n)).float()[None]
    torch.testing.assert_close(votes(target[None], weight).gather(1, index).log(), kept.bias)
    query = torch.randn(5, 1, d, generator=draw) * 2
    for q in query:
        full = attend(q, layer.keys, layer.values, 0.0, layer.scale)
        assert (attend(q, kept.keys, kept.values, kept.bias, layer.scale) - full).abs().max() < 1e-5
        half = (attend(q, kept.keys, kept.values, kept.bias / 2, layer.scale) - full).abs().max()
        none = (attend(q, kept.keys, kept.values, 0.0, layer.scale) - full).abs().max()
        assert none > half > 1e-3
    if gate == "none":  # equal keys suffice: their values may differ
        other = replace(layer, values=torch.randn(1, n, d, generator=draw))
        kept = method.compress(other, index.shape[1])
        for q in query:
            full = attend(q, other.keys, other.values, 0.0, other.scale)
            assert (attend(q, kept.keys, kept.values, kept.bias, layer.scale) - full).abs().max() < 1e-5


def test_generated_entries_carry_no_bias() -> None:
    # 14
    model, ids = build("llama"), tokens(60)
    state = prefill(model, ids)
    cache, _ = compressed_cache([Job(SelKV(recent=4), Fraction(1, 4))], state, 6)
    greedy(model, cache, state.logits, 6, Stop())
    for layer in cache.layers:
        mask = layer.mask[0, :, 0, : layer.used]
        assert mask.shape[1] == 15 + layer.used - layer.kept and layer.used > layer.kept
        assert bool((mask[:, :15] >= 0).all()) and bool(mask[:, :15].any())
        assert not mask[:, 15:].any()


# pipeline (16 to 18)


@pytest.mark.parametrize("family", FAMILIES)
def test_ratio_1_generates_what_the_full_cache_generates(family: str) -> None:
    model = build(family)
    state = prefill(model, tokens(40))
    full, ours = (
        greedy(model, compressed_cache([Job(method, Fraction(1))], state, 10)[0], state.logits, 10, Stop())
        for method in (Full(), SelKV())
    )
    assert full == ours


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral_window"])
def test_one_pass_equals_two_passes(family: str) -> None:
    model, ids = build(family), tokens(60)
    one, two = (prefill(model, ids, Needs(window=8), mode=mode) for mode in ("one_pass", "two_pass"))
    for a, b in zip(one.layers, two.layers, strict=True):
        x, y = (SelKV(window=8, recent=4).compress(layer, 2 * 6) for layer in (a, b))
        assert torch.equal(x.positions, y.positions)
        torch.testing.assert_close(x.values, y.values, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x.bias, y.bias, rtol=1e-4, atol=1e-4)


def from_yaml(name: str) -> SelKV:
    return instantiate(OmegaConf.load(METHODS / f"{name}.yaml"))


def test_the_stages_of_the_ablation_add_one_step_each() -> None:
    evict, merge_all, gate, whole = (from_yaml(f"selkv{x}") for x in ("_evict", "_mergeall", "_gate", ""))
    assert whole == SelKV()
    assert evict == SelKV(merge=False)
    assert merge_all == SelKV(gate="none", alpha=0)
    assert gate == SelKV(alpha=0)
    layer = random(4, 120, 2, 2)
    results = [method.compress(layer, 60) for method in (evict, merge_all, gate, whole)]
    for kept in results[1:]:
        assert torch.equal(kept.positions, results[0].positions) and torch.equal(kept.keys, results[0].keys)
    assert not any(kept.bias.any() for kept in results[:3]) and bool(results[3].bias.any())
    assert torch.equal(results[2].values, results[3].values)
    assert not torch.equal(results[0].values, results[1].values)
    assert not torch.equal(results[1].values, results[2].values)


@quick
@shapes
def test_merge_off_is_selection_and_gather_bit_for_bit(
    seed: int, n: int, kv_heads: int, group: int, share: float
) -> None:
    m, method = max(1, int(share * n)), from_yaml("selkv_evict")
    layer = random(seed, n, kv_heads, group)
    kept, index = method.compress(layer, m * kv_heads), parts(method, layer, m).index
    assert torch.equal(kept.keys, layer.keys.gather(1, index[..., None].expand(-1, -1, 8)))
    assert torch.equal(kept.values, layer.values.gather(1, index[..., None].expand(-1, -1, 8)))
    assert torch.equal(kept.positions, index) and not kept.bias.any()


# precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("routing", ["window", "coattention"])
def test_half_precision_has_float32_statistics(dtype: torch.dtype, routing: str) -> None:
    layer = random(5, 120, 2, 2, dtype=dtype)
    wide = replace(layer, keys=layer.keys.float(), values=layer.values.float(), queries=layer.queries.float())
    method = SelKV(routing=routing)
    half, full = method.compress(layer, 60), method.compress(wide, 60)
    assert half.keys.dtype == half.values.dtype == dtype and half.bias.dtype == torch.float32
    assert torch.equal(half.positions, full.positions)
    assert torch.equal(half.bias, full.bias)  # float32 all the way
    assert torch.equal(half.values, full.values.to(dtype))  # cast once
    assert dict(half.counters) == dict(full.counters)


def test_the_largest_halves_do_not_overflow() -> None:
    layer = random(6, 120, 2, 2, dtype=torch.float16)
    kept: Kept = SelKV().compress(replace(layer, values=layer.values.sign() * 60000), 60)
    assert bool(kept.values.isfinite().all()) and bool(kept.bias.isfinite().all())
    assert kept.counters["mean_gate"] > 0
