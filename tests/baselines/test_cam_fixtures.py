"""CaM against the outputs of its three official scripts, KVCache-Factory and kvpress."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from baselines.cam import CaM, add_values, followers, merge_probability
from baselines.native_merging import Live
from selkv.state import Kept, take
from tests.baselines.merging_layers import close, golden


@dataclass(frozen=True)
class Recorded(CaM):
    """CaM that takes its draws from a recording, and keeps the probabilities that it was asked for."""

    masks: list[Tensor] = field(default_factory=list)
    asked: list[Tensor] = field(default_factory=list)

    def draw(self, probability, stream):
        self.asked.append(probability)
        return self.masks.pop(0)


def test_cam_streaming_as_released(shared):
    data = golden(shared, "cam_streaming_steps")
    new_keys, new_values, rows = (data[x][:, 0, :, 0] for x in ("new_keys", "new_values", "attn"))
    masks = [torch.zeros(2, 25).index_fill(1, torch.tensor([4]), 1.0) * m[:, None] for m in data["merge_mask"][1:]]
    method = Recorded(selection="streaming", merge_budget=16, recent=20, masks=masks)
    kept = Kept(data["keys0"], data["values0"], torch.zeros(2, 23), torch.arange(23).expand(2, -1))
    nothing = torch.zeros(2, 23)
    state = Live(kept, nothing, nothing, nothing + 1, torch.empty(0), 24, 22, 0.25, None)
    for i in range(5):
        entries = state.mass.shape[1] + 1
        state = method.step(state, new_keys[i], new_keys[i], new_values[i], rows[i, :, :entries])
        if i:
            close(method.asked[i - 1][:, 4], data["merge_prob"][i])
    close(state.kept.keys, data["keys_final"])
    close(state.kept.values, data["values_final"])
    close(state.mass, data["accum_attn_final"][:, 0])


@pytest.mark.parametrize("case", ["cam_hf_decode_step", "cam_hf_decode_step_awkward"])
def test_cam_decode_step_as_released(shared, case):
    """One entry adds 1/32 to each of the next 32; its probability compares with all later ones; nothing is evicted."""
    data = golden(shared, case)
    values, attention, probability = data["values"], data["attn"][:, 0], data["merge_prob"]
    n, recent = (64, 40) if case == "cam_hf_decode_step" else (48, 20)
    source = n - recent + 1
    index = torch.cat([torch.arange(source), torch.arange(source + 1, n)]).expand(4, -1)
    close(merge_probability(attention, *followers(index, n, n))[:, source], probability)
    target, valid = followers(index, n, 32)
    weight = data["merge_mask"][:, None, None] * valid / 32
    close(add_values(values, values, target, weight, valid).values, data["values_out"])


def test_cam_of_kvcache_factory(shared):
    """A cascade over all positions before the window, kept or not, then eviction; its draws are given.

    Its probabilities have another reference (the largest attention) and are not ours to reproduce.
    """
    data = golden(shared, "kvcf_cam_gqa")
    values, slots = data["values"], torch.cdist(data["keys_out"], data["keys"]).argmin(-1)
    for step, mask in enumerate(data["merge_mask"]):
        source = 7 + step
        index = torch.cat([torch.arange(source), torch.arange(source + 1, 64)]).expand(2, -1)
        target, valid = followers(index, 64, 8)
        weight = mask[:, None, None] * valid / 8
        values = add_values(values, values, target, weight, valid).values
    close(take(values, slots), data["values_out"])


@pytest.mark.parametrize(("case", "merge_budget"), [("kvpress_cam_batch", 8), ("kvpress_cam_awkward", 32)])
def test_cam_of_kvpress(shared, case, merge_budget):
    data = golden(shared, case)
    keys, values, mass = data["keys"], data["values"], data["cum_attn"]
    n = keys.shape[1]
    index = torch.cdist(data["keys_out"][:1], keys[:1]).argmin(-1).expand(2, -1)
    close(take(keys, index), data["keys_out"])
    score = -keys.norm(dim=-1).mean(0)
    gone = torch.ones(n, dtype=torch.bool).scatter(0, index[0], False)
    chosen = score.masked_fill(~gone, -1e9).topk(data["merge_mask"].shape[1]).indices.sort().values
    target, valid = followers(index, n, merge_budget)
    close(merge_probability(mass, target, valid)[:, chosen], data["merge_prob"])
    draws = torch.zeros(2, n).index_copy(1, chosen, data["merge_mask"])
    weight = (draws / valid.sum(1).clamp(min=1))[:, None] * valid
    close(take(add_values(keys, values, target, weight, valid).values, index), data["values_out"])
