"""Merging methods against the outputs of the original implementations."""

from dataclasses import replace

import pytest
import torch

from baselines.d2o import D2O, layer_flatness
from baselines.kvmerger import exact_links, kernel, leaders, runs
from baselines.lookm import LookM, mean_into
from baselines.merging import passes
from baselines.weightedkv import WeightedKV, merge_right, schedule
from selkv.merge import gate_weight, nearest_kept, weighted_merge
from selkv.state import Kept, take
from tests.baselines.merging_layers import build, golden

TOLERANCE = 1e-5


def close(actual, expected, tolerance=TOLERANCE):
    torch.testing.assert_close(actual.float(), expected.float(), rtol=0, atol=tolerance)


def layer_of(data):
    return build(data["keys"], data["values"], column_mass=data["attn"].sum(1))


def positions_match(kept: Kept, data):
    assert torch.equal(kept.positions, data["kept_idx"])


@pytest.mark.parametrize(
    ("case", "method", "m"),
    [
        ("lookm_pivot_mha", LookM(), 16),
        ("lookm_pivot_d128", LookM(recent=3), 9),
        ("lookm_weighted_mha", LookM(merge="weighted", filter="official"), 16),
    ],
)
def test_lookm_as_released(shared, case, method, m):
    data = golden(shared, case)
    kept = method.compress(layer_of(data), 2 * m)
    positions_match(kept, data)
    close(kept.keys, data["keys_out"])
    close(kept.values, data["values_out"])


def test_lookm_averaged_as_intended(shared):
    data = golden(shared, "lookm_average_mha")
    kept = LookM(merge="averaged", filter="official").compress(layer_of(data), 32)
    positions_match(kept, data)
    close(kept.keys, data["keys_out_intended"])
    close(kept.values, data["values_out_intended"])


def test_lookm_averaged_defect_of_the_release(shared):
    """The released class filters its list of targets and not its sources: source r goes to the target of another."""
    data = golden(shared, "lookm_average_mha")
    index = data["kept_idx"]
    target, similarity = nearest_kept(data["keys"], index)
    chosen = passes(similarity, index, "official")
    assert torch.equal(chosen.sum(1), data["merged_rank_mask"].sum().expand(2))
    sources = (~torch.zeros_like(chosen).scatter(1, index, True)).nonzero()[:, 1].view(2, -1)
    count = int(chosen.sum(1)[0])
    wrong = target.scatter(1, sources[:, :count], target[chosen].view(2, -1))
    member = torch.zeros_like(similarity).scatter(1, sources[:, :count], 1.0)
    for name in ("keys", "values"):
        out = take(mean_into("averaged", data[name], wrong, member, similarity), index)
        close(out, data[f"{name}_out"])


@pytest.mark.parametrize("merge", ["pivotal", "averaged", "weighted"])
def test_lookm_with_the_gate(shared, merge):
    data, inputs = golden(shared, "lookm_gate_derived"), golden(shared, "lookm_pivot_mha")
    kept = LookM(merge=merge, gate="cosine").compress(layer_of(inputs), 32)
    name = {"pivotal": "pivot", "averaged": "average"}.get(merge, merge)
    close(kept.keys, data[f"{name}_keys_out"])
    close(kept.values, data[f"{name}_values_out"])
    gone = data["target"] >= 0
    gate = gate_weight(inputs["values"], data["target"].clamp(min=0), "cosine") * gone
    close(gate, data["gate"])
    assert kept.counters["routed"] == 1
    assert kept.counters["gate_zero"] == pytest.approx(float((gate[gone] == 0).float().mean()))
    assert kept.counters["mean_gate"] == pytest.approx(float(gate[gone].mean()))


def test_kvcache_factory_pivotal(shared):
    """KVCache-Factory's `pivot` is LOOK-M's pivotal merge on another selection, in score order."""
    data = golden(shared, "kvcf_merge_pivot")
    slots = torch.cat([data["selected_idx"], torch.arange(56, 64).expand(2, -1)], 1)
    target, similarity = nearest_kept(data["keys"], slots.sort(1).values)
    member = (~torch.zeros(2, 64, dtype=torch.bool).scatter(1, slots, True)).float()
    for name in ("keys", "values"):
        close(take(mean_into("pivotal", data[name], target, member, similarity), slots), data[f"{name}_out"])


def test_kvcache_factory_snapkv_pivotal(shared):
    data = golden(shared, "kvcf_snapkv_pivot_gqa")
    layer = build(data["keys"], data["values"], data["queries"], window=8)
    method = LookM(selection="snapkv", window=8, recent=8, sinks=0)
    plain = replace(method, gate=2.0).compress(layer, 36)
    merged = method.compress(layer, 36)
    slots = torch.cdist(data["keys_out_evict_only"], plain.keys).argmin(-1)  # theirs are in score order
    for name in ("keys", "values"):
        close(take(getattr(plain, name), slots), data[f"{name}_out_evict_only"])
        close(take(getattr(merged, name), slots), data[f"{name}_out"])


def test_kvmerger_sets_and_kernel_of_a_third_party(shared):
    """The third party trims its sets by a threshold search; ours are compared on its sets, with its two-stage width."""
    data = golden(shared, "kvmerger_thirdparty_target")
    keys, values, attention, run = (data[x][None] for x in ("keys", "values", "agg_attn", "set_id"))
    target, found = leaders(attention, run, torch.ones_like(attention, dtype=torch.bool))
    assert found.all()
    pivots = target.unique()
    assert torch.equal(pivots, data["pivot_idx"])
    routed = target != torch.arange(64)
    distance = (keys - take(keys, target)).square().sum(-1)
    gaussian = kernel(distance, target, routed, "fixed_point", 5.0, steps=1) * routed
    for name, x in (("keys", keys), ("values", values)):
        close(weighted_merge(x, torch.ones_like(attention), target, gaussian)[0, pivots], data[f"{name}_out"])
    links = exact_links(keys, attention, torch.zeros_like(routed), 48)
    assert runs(links).max() == 15


def test_d2o_prefill_as_released(shared):
    data = golden(shared, "d2o_prefill_decode")
    kept = D2O(weights="code", filter="official").compress(layer_of(data), 32)
    positions_match(kept, data)
    close(kept.keys, data["keys_out"])
    close(kept.values, data["values_out"])


def test_d2o_native_as_released(shared):
    data = golden(shared, "d2o_prefill_decode")
    method = D2O(weights="code", filter="official", momentum=0.5, decode="native")
    state = method.start(layer_of(data), 32)
    close(state.memory, data["threshold"].expand(2))
    for i in range(3):
        key, value, row = data[f"step{i}_new_key"][:, 0], data[f"step{i}_new_value"][:, 0], data[f"step{i}_attn"][:, 0]
        state = method.step(state, key, key, value, row)
        close(state.memory, data[f"step{i}_threshold"].expand(2))
        close(state.kept.keys, data[f"step{i}_keys_out"])
        close(state.kept.values, data[f"step{i}_values_out"])


def test_d2o_at_the_first_step_with_repeated_heads(shared):
    """The Llama-3 class compresses at the first decode step, on KV repeated to the query heads."""
    data = golden(shared, "d2o_llama3_first_step_gqa_repeated")
    layer = build(data["keys"], data["values"], column_mass=data["score"])
    method = D2O(weights="code", filter="official", recent=3)
    kept = method.compress(layer, 32 * 9)
    positions_match(kept, data)
    close(kept.keys, data["keys_out"])
    close(kept.values, data["values_out"])
    close(method.threshold(layer, data["kept_idx"]), data["threshold"].expand(32))


def test_d2o_layer_ratios(shared):
    data = golden(shared, "d2o_layer_ratios")
    flatness = layer_flatness(data["column_sums"])
    close(flatness, data["layer_stat"])
    close((6 * 0.2 * (-flatness).softmax(0)).clamp(0.01, 1), data["layer_ratio"])


def test_weightedkv_algorithm_1(shared):
    data = golden(shared, "weightedkv_alg1")
    layer = build(data["keys"], data["values"], data["queries"])
    kept = WeightedKV(recent=14).compress(layer, 48)  # 4 sinks and 10 recent
    positions_match(kept, data)
    close(kept.values, data["values_out"])
    assert torch.equal(kept.keys, take(layer.keys, kept.positions))
    mask = torch.zeros(2, 64, dtype=torch.bool).scatter(1, data["kept_idx"], True)
    target, _ = schedule(data["avg_attn"], mask)
    for head in range(2):
        sources, targets = data["merge_order"][head].T
        assert torch.equal(target[head, sources], targets)


def test_weightedkv_vector_of_the_paper():
    """Averages 0.1 and 0.5 give v2 / 6 + 5 v3 / 6."""
    values = torch.eye(3)[None]
    average = torch.tensor([[0.9, 0.1, 0.5]])
    kept = torch.tensor([[True, False, True]])
    merged = merge_right(values, average, kept, "none")[0]
    close(merged[0, 2], torch.tensor([0, 1 / 6, 5 / 6]))
