"""Merging methods against loops that follow their equations."""

import time
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from baselines.cam import CaM
from baselines.d2o import D2O
from baselines.ems import EMS, likest
from baselines.keepkv import merged_memory
from baselines.kvmerger import KVMerger, exact_links, leaders, link_similarity, runs
from baselines.merging import readers, received
from baselines.weightedkv import WeightedKV, merge_right, schedule
from selkv.merge import cosine, gate_weight
from selkv.scores import mask_of
from tests.baselines.merging_layers import build, random_layer


def slow_algorithm_1(values: Tensor, average: Tensor, kept: Tensor, gate: str) -> Tensor:
    merged = values.clone()
    for head in range(len(values)):
        alive = list(range(values.shape[1]))
        for j in sorted((~kept[head]).nonzero()[:, 0].tolist(), key=lambda j: (float(average[head, j]), j)):
            place = alive.index(j)
            if place + 1 < len(alive):
                i = alive[place + 1]
                g = 1.0 if gate == "none" else max(float(cosine(values[head, j], merged[head, i])), 0.0)
                w, v = g * average[head, j], average[head, i]
                merged[head, i] = (w * merged[head, j] + v * merged[head, i]) / (w + v)
            alive.remove(j)
    return merged


@pytest.mark.parametrize("gate", ["none", "cosine"])
def test_weightedkv_follows_algorithm_1(gate):
    layer = random_layer(n=70)
    average = received(layer, "all", 32) / readers(layer, "all", 32)
    average[:, 10:40] = average[:, 10:40].round(decimals=2)  # ties
    kept = torch.rand(2, 70, generator=torch.Generator().manual_seed(1)) < 0.3
    merged, survivor, weight, routed = merge_right(layer.values, average, kept, gate)
    expected = slow_algorithm_1(layer.values, average, kept, gate)
    torch.testing.assert_close(merged[kept], expected[kept], rtol=1e-5, atol=1e-5)
    last = int(kept[0].nonzero()[-1])
    assert bool(routed[0, :last][~kept[0, :last]].all()) and not routed[0, last:].any()
    assert bool((weight[kept] == 0).all()) and bool((weight <= 1).all())
    assert bool((survivor >= torch.arange(70)).all())


def test_weightedkv_gate_multiplies_along_the_way():
    """Entry 0 goes into 1 and 1 into 2: what arrives of 0 is the product of both gates."""
    values = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])
    average = torch.tensor([[0.1, 0.2, 0.3]])
    weight = merge_right(values, average, torch.tensor([[False, False, True]]), "cosine")[2]
    first = gate_weight(values, torch.tensor([[1, 2, 2]]), "cosine")[0]
    torch.testing.assert_close(weight[0, :2], torch.stack([first[0] * first[1], first[1]]))


def test_weightedkv_turns_are_few_and_fast():
    """n = 32k, 8 heads, d = 128: under a second of two quiet cores; processor time leaves room for a busy machine."""
    draw = torch.Generator().manual_seed(0)
    values, average = torch.randn(8, 32768, 128, generator=draw), torch.rand(8, 32768, generator=draw)
    kept = mask_of(WeightedKV()._stay(average, 8192), 32768)
    assert schedule(average, kept).turn.max() < 100
    start = time.process_time()
    merge_right(values, average, kept, "none")
    assert time.process_time() - start < 2


def test_kvmerger_merges_the_most_similar_free_links():
    layer = random_layer()
    attention = received(layer, "all", 32)
    protection = torch.zeros(2, 96, dtype=torch.bool)
    protection[:, 80:] = True
    for count in (1, 40, 79, 85, 95):
        links = exact_links(layer.keys, attention, protection, count)
        assert bool((links.sum(1) == count).all())
        if count <= 79:
            assert not links[:, 79:].any()
            order = link_similarity(layer.keys)[:, :79].sort(dim=1, descending=True).indices[:, :count]
            assert torch.equal(links, mask_of(order, 95))


def test_kvmerger_leaders():
    attention = torch.tensor([[1.0, 3.0, 3.0, 2.0, 5.0, 4.0]])
    run = runs(torch.tensor([[True, True, False, True, True]]))
    assert run.tolist() == [[0, 0, 0, 1, 1, 1]]
    target, found = leaders(attention, run, torch.tensor([[True, True, True, True, False, True]]))
    assert target.tolist() == [[1, 1, 1, 5, 5, 5]] and bool(found.all())
    assert not leaders(attention, run, torch.tensor([[True, False, False, False, False, False]]))[1][0, 3:].any()


def test_set_size_scales_equal_values_by_their_number():
    """The reason for value_scale=convex: equal clusters of size c give c times the values."""
    layer = build(torch.ones(1, 12, 4), torch.ones(1, 12, 4))
    kept = KVMerger(value_scale="set_size", recent=0.0, heavy=0.0).compress(layer, 4)
    assert float(kept.values[..., 0].sum()) == pytest.approx(12)


def test_cam_draws_are_seeded_and_average_to_the_expectation():
    layer = random_layer()
    drawn = CaM(stochastic=True, seed=3)
    assert torch.equal(drawn.compress(layer, 48).values, drawn.compress(layer, 48).values)
    before = torch.get_rng_state()
    samples = [CaM(stochastic=True, seed=s).compress(layer, 48).values for s in range(300)]
    assert torch.equal(before, torch.get_rng_state())
    expected = CaM().compress(layer, 48).values
    torch.testing.assert_close(torch.stack(samples).mean(0), expected, rtol=0, atol=0.15)
    other = replace(layer, layer=1)
    assert not torch.equal(drawn.compress(other, 48).values, drawn.compress(layer, 48).values)


def test_ems_drops_what_is_unlike_or_unimportant():
    layer = random_layer()
    assert EMS(recent=8, threshold=1.0).compress(layer, 48).counters["routed"] == 0
    some = EMS(recent=8, threshold=0.0, share=1.0).compress(layer, 48).counters
    assert some["routed"] == pytest.approx(24 / 72)
    kept = EMS(recent=8, threshold=0.0, share=3.0).compress(layer, 48)
    lengths = layer.keys.norm(dim=-1).gather(1, kept.positions)
    torch.testing.assert_close(kept.keys.norm(dim=-1), lengths)  # directions turn, lengths stay


def loop_merge(x: Tensor, own: float, target: Tensor, weight: Tensor) -> Tensor:
    """(own x_i + sum_j w_j x_j) / (own + sum_j w_j), entry by entry."""
    merged = x.clone()
    for head, i in product(range(len(x)), range(x.shape[1])):
        sources = [j for j in range(x.shape[1]) if weight[head, j] > 0 and target[head, j] == i]
        total = own * x[head, i] + sum(weight[head, j] * x[head, j] for j in sources)
        merged[head, i] = total / (own + sum(weight[head, j] for j in sources))
    return merged


@pytest.mark.parametrize("gate", ["none", "cosine"])
def test_d2o_weights_of_the_paper(gate):
    """Eqs. 11-12: exp of cosines against e; only entries at or above the head's mean cosine."""
    layer = random_layer()
    method = D2O(gate=gate)
    index = method.survivors(layer, 24)
    target, weight = torch.zeros(2, 96, dtype=torch.long), torch.zeros(2, 96)
    for head in range(2):
        stay = index[head].tolist()
        best = {j: max((float(cosine(layer.keys[head, j], layer.keys[head, i])), -i) for i in stay) for j in range(96)}
        gone = [j for j in range(96) if j not in stay]
        mean = sum(best[j][0] for j in gone) / len(gone)
        for j in gone:
            target[head, j] = -best[j][1]
            weight[head, j] = torch.tensor(best[j][0]).exp() if best[j][0] >= mean else 0
    weight = weight * gate_weight(layer.values, target, gate)
    kept = method.compress(layer, 48)
    for ours, x in ((kept.keys, layer.keys), (kept.values, layer.values)):
        expected = loop_merge(x, torch.e, target, weight)
        torch.testing.assert_close(ours, expected.gather(1, index[..., None].expand_as(ours)), rtol=1e-5, atol=1e-5)


def test_the_only_evicted_entry_reaches_its_own_mean():
    layer = random_layer()
    assert D2O().compress(layer, 2 * 95).counters["routed"] == 1


@pytest.mark.parametrize("sigma_mode", ["fixed", "rms"])
def test_kvmerger_gaussian_means(sigma_mode):
    layer = random_layer()
    method = KVMerger(sigma_mode=sigma_mode, sigma=3.0)
    index = method.survivors(layer, 24)
    absorbed = method.absorb(layer, index)
    weight = torch.zeros(2, 96)
    for head, pivot in ((h, p) for h in range(2) for p in index[h].tolist()):
        members = [j for j in range(96) if absorbed.target[head, j] == pivot]
        distance = (layer.keys[head, members] - layer.keys[head, pivot]).square().sum(-1)
        variance = 9.0 if sigma_mode == "fixed" else float(distance.mean())
        weight[head, members] = torch.exp(-distance / (2 * max(variance, 1e-30)))
        assert members == list(range(members[0], members[0] + len(members)))
    weight[absorbed.target == torch.arange(96)] = 0
    for ours, x in ((absorbed.keys, layer.keys), (absorbed.values, layer.values)):
        torch.testing.assert_close(ours, loop_merge(x, 1.0, absorbed.target, weight), rtol=1e-5, atol=1e-5)


def test_kvmerger_frees_the_least_attended_first():
    """Entries 2, 5 and 8 are protected; free links 0-1, 3-4, 6-7 are too few: entry 5 is freed, then 2."""
    keys = torch.randn(1, 9, 4, generator=torch.Generator().manual_seed(0))
    attention = torch.tensor([[0, 0, 2.0, 0, 0, 1.0, 0, 0, 3.0]])
    protection = attention > 0
    free = {3: [0, 3, 6], 5: [0, 3, 4, 5, 6], 7: [0, 1, 2, 3, 4, 5, 6], 8: list(range(8))}
    for count, expected in free.items():
        assert exact_links(keys, attention, protection, count)[0].nonzero()[:, 0].tolist() == expected


def test_ems_likeness_needs_both_keys_and_values_alike():
    layer = random_layer()
    index = torch.arange(0, 96, 8).expand(2, -1)
    target, likeness = likest(layer.keys, layer.values, index, block=10)
    for head, j in product(range(2), range(0, 96, 5)):
        pairs = [
            max(float(cosine(layer.keys[head, j], layer.keys[head, i])), 0)
            * max(float(cosine(layer.values[head, j], layer.values[head, i])), 0)
            for i in index[head].tolist()
        ]
        assert float(likeness[head, j]) == pytest.approx(max(pairs), abs=1e-6)
        assert pairs[index[head].tolist().index(int(target[head, j]))] == pytest.approx(max(pairs), abs=1e-6)
    opposite = likest(torch.tensor([[[1.0, 0], [-1, 0]]]), torch.tensor([[[0, 1.0], [0, -1]]]), torch.tensor([[0]]))
    assert opposite[1][0, 1] == 0


def test_keepkv_memory_averages_by_votes():
    """What a target's own queries do not see stays unseen, whatever it takes over."""
    unseen = float("-inf")
    scores, votes = torch.tensor([[1.0, 2.0, unseen], [0.5, 1.0, 3.0]]), torch.tensor([[2.0, 1.0, 4.0]])
    memory = torch.cat([scores, votes.log()])[None]
    target, gate = torch.tensor([[2, 2, 2]]), torch.tensor([[1.0, 0.5, 0.0]])
    after = merged_memory(memory, target, gate)
    assert after[0, 0, 2] == unseen and torch.equal(after[0, :2, :2], memory[0, :2, :2])
    torch.testing.assert_close(after[0, 2, 2].exp(), torch.tensor(4 + 2 + 0.5))
    expected = (4 * torch.tensor(3.0).exp() + 2 * torch.tensor(0.5).exp() + 0.5 * torch.tensor(1.0).exp()) / 6.5
    torch.testing.assert_close(after[0, 1, 2].exp(), expected)
