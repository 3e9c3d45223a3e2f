"""SelKV against numbers: worked examples A and B with all their variants, and random cases for two routings."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from selkv.rotary import rotate
from selkv.selkv import SelKV
from selkv.state import Kept, LayerState
from tests.baselines.layers import block_diagonal, full_attention

METHOD = SelKV(window=2, recent=1, kernel=3, bucket=4)


@pytest.fixture(scope="module")
def examples(shared: Path) -> dict[str, Any]:
    return json.loads((shared / "golden" / "merging" / "selkv_worked_examples.json").read_text())


@pytest.fixture(scope="module")
def one(examples: dict[str, Any]) -> dict[str, Any]:
    return examples["example_A"]


@pytest.fixture(scope="module")
def two(examples: dict[str, Any]) -> dict[str, Any]:
    return examples["example_B_two_kv_heads"]


@pytest.fixture(scope="module")
def random_case(shared: Path) -> dict[str, Tensor]:
    tensors = load_file(shared / "golden" / "merging" / "selkv_gqa.safetensors")
    return {name: x[0] if name in ("queries", "keys", "values") else x for name, x in tensors.items()}


def layer_a(one: dict[str, Any]) -> LayerState:
    return LayerState(
        keys=torch.tensor([one["k"]]),
        values=torch.tensor([one["v"]]),
        queries=torch.tensor([one["q_window"]]),
        positions=torch.arange(8),
        scale=2**-0.5,
        inv_freq=torch.tensor([1.0]),
    )


def layer_b(two: dict[str, Any], scope: str) -> LayerState:
    """Keys whose softmax is the given attention: logs of its two rows, read by the queries e1 and e2.

    Shared sets need query groups: each head's query comes twice, as the mean of two equal rows is that row.
    """
    attention = torch.tensor(two["A_window"]).clamp(min=1e-30)  # (2, 2, 8)
    keys = attention.log().transpose(1, 2).clone()
    keys[:, 7, 0] = 0  # masked for the first query
    group = 1 if scope == "per_head" else 2
    return LayerState(
        keys=keys,
        values=torch.tensor(two["v"]),
        queries=torch.eye(2).expand(2 * group, 2, 2),
        positions=torch.arange(8),
        scale=1.0,
    )


def close(x: Tensor, y: Any, atol: float = 1e-5) -> None:
    torch.testing.assert_close(x, torch.as_tensor(y, dtype=x.dtype), rtol=1e-5, atol=atol)


def ratios(kept: Kept, alpha: float = 0.5) -> Tensor:
    return (kept.bias / alpha).exp()


def output(kept: Kept, query: Tensor, scale: float) -> Tensor:
    """Attention of one query over what was kept; (Hkv, d)."""
    weights = (kept.keys @ query * scale + kept.bias).softmax(-1)
    return (weights[:, None] @ kept.values)[:, 0]


# worked example A: one head


def test_example_a_step_by_step(one: dict[str, Any]) -> None:
    layer = layer_a(one)
    close(layer.window_attention(2)[0], one["A_window"])
    attention = METHOD._attention(layer)
    close(attention[0], one["a"])
    close(METHOD._score(layer, attention, 7)[0], one["c_pooled_first_7"])
    kept = METHOD.compress(layer, 4)
    assert kept.positions[0].tolist() == one["kept_positions"]
    close(kept.values[0], one["v_merged_kept"])
    close(ratios(kept)[0], one["R_kept"])
    close(kept.bias[0], one["bias_kept_alpha_0.5"])
    assert torch.equal(kept.keys[0], layer.keys[0, one["kept_positions"]])
    assert kept.counters["routed"] == 1 and kept.counters["dropped"] == 0
    assert kept.counters["gate_zero"] == 0.25 and kept.counters["mean_gate"] == pytest.approx(0.6)
    assert kept.counters["max_log_ratio"] == pytest.approx(math.log(1.566666667))
    assert kept.counters["union"] == 3 and kept.counters["evicted_first_share"] == pytest.approx(0.15)


def test_example_a_mass(one: dict[str, Any]) -> None:
    kept = METHOD.compress(layer_a(one), 4)
    own = torch.tensor(one["a"])[kept.positions[0]]
    assert float((own * ratios(kept)[0]).sum()) == pytest.approx(1.72, abs=1e-5)


@pytest.mark.parametrize(
    ("stage", "switches"),
    [
        ("eviction_only", {"merge": False}),
        ("merge_all", {"gate": "none", "alpha": 0}),
        ("gate", {"alpha": 0}),
        ("gate_comp05", {}),
        ("gate_comp1", {"alpha": 1}),
    ],
)
def test_example_a_decodes_in_every_stage_of_the_ablation(
    one: dict[str, Any], stage: str, switches: dict[str, Any]
) -> None:
    kept = replace(METHOD, **switches).compress(layer_a(one), 4)
    close(output(kept, torch.tensor(one["decode_query"]), 2**-0.5)[0], one["outputs"][stage])


def test_example_a_merge_all(one: dict[str, Any]) -> None:
    kept = replace(METHOD, gate="none").compress(layer_a(one), 4)
    close(kept.values[0], one["v_merged_kept_merge_all"])
    close(ratios(kept)[0], one["R_kept_merge_all"])


def test_example_a_hard_threshold(one: dict[str, Any]) -> None:
    # cosines 1.0, -0.6, 0.8, 0.6: a threshold of 0.7 lets tokens 0 and 4 in, whole
    kept = replace(METHOD, gate=0.7).compress(layer_a(one), 4)
    close(ratios(kept)[0], [0.95 / 0.65, 1, 0.40 / 0.30, 1])


@pytest.mark.parametrize(("variant", "m", "bucket"), [("variant_m3", 3, 4), ("variant_B2", 4, 2)])
@pytest.mark.parametrize("routing", ["window", "coattention"])
def test_example_a_variants(one: dict[str, Any], variant: str, m: int, bucket: int, routing: str) -> None:
    expected = one[variant]
    method = replace(METHOD, bucket=bucket, routing=routing)
    kept = method.compress(layer_a(one), m)
    assert kept.positions[0].tolist() == expected["kept"]
    close(ratios(kept)[0], expected["R"])
    if "v_merged_kept" in expected:
        close(kept.values[0], expected["v_merged_kept"])


def test_example_a_targets(one: dict[str, Any]) -> None:
    for variant, bucket, m in ((one, 4, 4), (one["variant_m3"], 4, 3), (one["variant_B2"], 2, 4)):
        expected = torch.tensor(variant.get("target", one["target_window_routing"]))
        close_targets(replace(METHOD, bucket=bucket), layer_a(one), m, expected[None])


def close_targets(method: SelKV, layer: LayerState, m: int, expected: Tensor) -> None:
    """Targets as in the data: -1 where an entry is kept or dropped."""
    attention = method._attention(layer)
    index, own, _ = method._select(layer, attention, m)
    kept = torch.zeros(expected.shape, dtype=torch.bool).scatter_(1, index, True)
    routes = method._route(layer, attention, kept, own)
    assert torch.equal(torch.where(routes.routed, routes.target, -1), expected)


def test_example_a_repositioned(one: dict[str, Any]) -> None:
    expected, layer = one["reposition"], layer_a(one)
    old, new = torch.tensor(expected["old_positions"]), torch.tensor(expected["new_positions"])
    close(rotate(layer.keys[0, old], new - old, torch.tensor(expected["inv_freq"])), expected["keys_repositioned"])
    kept = replace(METHOD, reposition=True).compress(layer, 4)
    # ours ends at the last position instead of beginning at 0: four further on
    close(rotate(kept.keys[0], torch.full((4,), -4), torch.tensor([1.0])), expected["keys_repositioned"])
    assert kept.positions[0].tolist() == expected["old_positions"]


# worked example B: two KV heads


def test_example_b_union_trim_and_averaged_ratio(two: dict[str, Any]) -> None:
    layer = layer_b(two, "auto")
    attention = METHOD._attention(layer)
    close(attention, two["a"])
    close(METHOD._score(layer, attention, 7), two["c_pooled_first_7"])
    _, own, union = METHOD._select(layer, attention, 4)
    assert [row.nonzero()[:, 0].tolist() for row in own] == two["head_top_sets_with_recent"]
    assert union == len(two["union"]) - 1  # there with the recent token
    kept = METHOD.compress(layer, 8)
    assert kept.positions.tolist() == [two["kept_after_trim"]] * 2
    close_targets(METHOD, layer, 4, torch.tensor(two["target"]))
    close(kept.values, two["v_merged_kept"])
    close(kept.bias, [two["bias_kept_alpha_0.5"]] * 2)
    assert kept.counters["union"] == 5
    alone = replace(METHOD, ratio_reduce="none").compress(layer, 8)
    close(ratios(alone), two["R_per_head_kept"])
    logs = torch.tensor(two["R_per_head_kept"]).log().mean(0)
    close(replace(METHOD, ratio_reduce="logmean").compress(layer, 8).bias, (0.5 * logs).expand(2, -1))


def test_example_b_per_head(two: dict[str, Any]) -> None:
    layer, expected = layer_b(two, "per_head"), two["mha_per_head"]
    kept = METHOD.compress(layer, 8)
    assert kept.positions.tolist() == expected["kept"]
    close_targets(METHOD, layer, 4, torch.tensor(expected["target"]))
    close(kept.values, expected["v_merged_kept"])
    close(kept.bias, expected["bias_kept_alpha_0.5"])
    assert kept.counters["dropped"] == 0.5


def test_example_b_nearest_fallback(two: dict[str, Any]) -> None:
    layer, expected = layer_b(two, "per_head"), two["mha_per_head"]["nearest_fallback"]
    method = replace(METHOD, empty_bucket="nearest")
    close_targets(method, layer, 4, torch.tensor(expected["target"]))
    close(ratios(method.compress(layer, 8)), expected["R_kept"])


# random grouped-query case


@pytest.mark.parametrize(("routing", "suffix"), [("window", ""), ("literal", "_literal")])
def test_random_case(random_case: dict[str, Tensor], routing: str, suffix: str) -> None:
    case, method = random_case, SelKV(routing=routing)
    attention = full_attention(case["queries"], case["keys"], 16**-0.5)
    layer = LayerState(
        keys=case["keys"],
        values=case["values"],
        queries=case["queries"][:, -32:],
        positions=torch.arange(96),
        scale=16**-0.5,
        block_attention={32: block_diagonal(attention, 32)},
    )
    a = method._attention(layer)
    close(layer.window_attention(32).unflatten(0, (2, 2)).mean(1), case["attn_window"])
    close(a, case["a"])
    close(method._score(layer, a, 80), case["score"])
    close_targets(method, layer, 36, case["target" + suffix])
    kept = method.compress(layer, 72)
    assert torch.equal(kept.positions, case["kept_idx"].expand(2, -1))
    close(kept.values, case["values_out" + suffix])
    close(kept.bias, case["bias" + suffix].expand(2, -1))
    alone = replace(method, ratio_reduce="none").compress(layer, 72)
    close(ratios(alone), case["R_per_head" + suffix])
