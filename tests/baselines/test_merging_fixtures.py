"""Merging methods against the outputs of the original implementations."""

from dataclasses import dataclass, replace

import pytest
import torch

from baselines.d2o import D2O, layer_flatness
from baselines.explore import Merge
from baselines.keepkv import KeepKV
from baselines.kvmerger import exact_links, kernel, leaders, runs
from baselines.lookm import LookM, mean_into
from baselines.merging import passes
from baselines.weightedkv import WeightedKV, merge_right, schedule
from selkv.merge import gate_weight, nearest_kept, weighted_merge
from selkv.method import Method
from selkv.rotary import rotate
from selkv.scores import keep_best
from selkv.state import Kept, take
from tests.baselines.merging_layers import build, close, golden


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
    plain = replace(method, gate=1.0).compress(layer, 36)
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


# threshold 0.8 in float16, in which the release compares cosines
RELEASED = KeepKV(
    selection="release", score="mean", keys="convex", threshold=0.79956, window=6, recent=6, sinks=2, decode="native"
)
HALF = 2e-3


def test_keepkv_as_released(shared):
    data = golden(shared, "keepkv_prefill")
    layer = build(data["keys"], data["values"], data["queries"], window=6)
    kept = RELEASED.compress(layer, 36)
    positions_match(kept, data)
    close(kept.keys, data["keys_out"], HALF)
    close(kept.values, data["values_out"], HALF)
    close(kept.bias.exp(), data["votes_out"])
    stored = RELEASED.start(layer, 36).memory[:, :-1].exp()
    close(stored, data["recent_scores_out"], HALF)


def test_keepkv_native_as_released(shared):
    data = golden(shared, "keepkv_prefill_decode")
    state = RELEASED.start(build(data["keys"], data["values"], data["queries"], window=6), 36)
    query, key, value = (data[f"new_{x}"][:, 0] for x in ("query", "key", "value"))
    logits = (query[:, None] * torch.cat([state.kept.keys, key[:, None]], 1)).sum(-1) / 4
    row = (logits + torch.nn.functional.pad(state.kept.bias, (0, 1))).softmax(-1)
    state = RELEASED.step(state, query, key, value, row)
    close(state.kept.keys, data["step_keys_out"], HALF)
    close(state.kept.values, data["step_values_out"], HALF)
    close(state.kept.bias.exp(), data["step_votes_out"])


def test_keepkv_zip_leaves_the_scoring_query_alone(shared):
    data = golden(shared, "keepkv_zip_exact")
    query, keys, values = data["query"], data["keys"][None], data["values"][None]
    layer = build(keys, values, query.expand(1, 48, -1), window=1)
    method = KeepKV(selection="snapkv", kernel=1, window=1, recent=0, sinks=0, threshold=-1.0)
    kept = method.compress(layer, 16)
    assert torch.equal(kept.positions[0], data["kept_idx"].sort().values)
    order = data["kept_idx"].argsort()
    close(kept.keys[0], data["keys_out"][order])
    close(kept.values[0], data["values_out"][order])
    close(kept.bias[0].exp(), data["votes"][order])
    output = (kept.keys[0] @ query / 4 + kept.bias[0]).softmax(-1) @ kept.values[0]
    close(output, data["output_compressed"])
    close(output, data["output_full"])


@pytest.mark.parametrize(
    ("case", "options"),
    [("kvpress_merging_default", {}), ("kvpress_merging_thr_frac", {"threshold": 0.3, "fraction": 0.75})],
)
def test_merging_press_of_kvpress(shared, case, options):
    data = golden(shared, case)
    method = Merge(selection=f"{__name__}.Given", rule="norm", **options)
    scores = torch.zeros(2, 64).scatter(1, data["kept_idx"], 1.0)
    kept = method.compress(build(data["keys"], data["values"], column_mass=scores), 32)
    order = data["kept_idx"].argsort(1)
    assert torch.equal(kept.positions, take(data["kept_idx"], order))
    assert torch.equal(kept.keys, take(data["keys"], kept.positions))
    close(kept.values, take(data["kept_values_out"], order))
    close(kept.values, take(data["values_full_out"], kept.positions))


def test_rerotation_of_kvpress(shared):
    data = golden(shared, "kvpress_rerotate_gqa")
    index = data["kept_idx"]
    keys = rotate(take(data["keys_rope"], index), torch.arange(24) - index, data["inv_freq"])
    close(keys, data["keys_out"])
    close(keys, data["keys_direct"])


@dataclass(frozen=True)
class Given(Method):
    """Keeps what the column mass marks."""

    def compress(self, layer, budget):
        return keep_best(layer, layer.column_mass, budget)
