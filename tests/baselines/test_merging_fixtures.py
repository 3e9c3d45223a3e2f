"""Merging methods against the outputs of the original implementations."""

from dataclasses import replace

import pytest
import torch

from baselines.lookm import LookM, mean_into
from baselines.merging import passes
from selkv.merge import gate_weight, nearest_kept
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
    assert kept.counters["routed"] == pytest.approx(float((gate[gone] > 0).float().mean()))


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
