"""Native decoding of the merging methods: one entry merged away for each generated token."""

from dataclasses import replace

import pytest
import torch

import selkv
from baselines.cam import CaM
from baselines.d2o import D2O
from baselines.keepkv import KeepKV, first_memory
from baselines.lookm import LookM
from baselines.native_merging import NativeMerging
from baselines.weightedkv import WeightedKV
from selkv.method import NativeMethod
from selkv.state import keep_all
from selkv.window import attention_logits
from tests.baselines.merging_layers import random_layer
from tests.models import build, tokens

METHODS: dict[str, NativeMerging] = {
    "d2o": D2O(decode="native"),
    "d2o code": D2O(decode="native", weights="code", filter="official", selection="streaming"),
    "keepkv": KeepKV(decode="native", threshold=0.2),
    "keepkv release": KeepKV(decode="native", threshold=0.2, selection="release", keys="convex", score="mean"),
    "cam": CaM(decode="native"),
    "cam streaming": CaM(decode="native", selection="streaming", stochastic=True, merge_budget=4),
    "weightedkv": WeightedKV(decode="native"),
    "weightedkv group": WeightedKV(decode="native", order="group"),
}
every_method = pytest.mark.parametrize("name", METHODS)
HEADS, KV_HEADS, M = 4, 2, 24


def decode(method, layer, steps=12, budget=KV_HEADS * M, seed=5):
    """States before and after each of some random tokens, which attend as the decoder does."""
    draw = torch.Generator().manual_seed(seed)
    states, attended = [method.start(layer, budget)], []
    for _ in range(steps):
        query = torch.randn(HEADS, 16, generator=draw)
        key, value = torch.randn(2, KV_HEADS, 16, generator=draw)
        kept = states[-1].kept
        keys = torch.cat([kept.keys, key[:, None].to(kept.keys.dtype)], 1)
        values = torch.cat([kept.values, value[:, None].to(kept.values.dtype)], 1)
        logits = attention_logits(query[:, None], keys, layer.scale)[:, 0].unflatten(0, (KV_HEADS, -1))
        row = (logits + torch.nn.functional.pad(kept.bias, (0, 1))[:, None]).softmax(-1)
        attended.append((keys, values))
        states.append(method.step(states[-1], query, key, value, row.flatten(0, 1)))
    return states, attended


@every_method
def test_budget_stays_and_positions_ascend(name):
    layer = random_layer()
    states, _ = decode(METHODS[name], layer)
    for i, state in enumerate(states):
        kept = state.kept
        assert kept.positions.shape == (KV_HEADS, M)
        assert bool((kept.positions.diff(dim=1) > 0).all()) and kept.positions[:, -1].eq(95 + i).all()
        assert all(bool(x.isfinite().all()) for x in kept[:3])
        assert state.mass.shape == state.reads.shape == state.ratio.shape == (KV_HEADS, M)
    assert torch.equal(states[0].kept.keys, METHODS[name].compress(layer, KV_HEADS * M).keys)


@every_method
def test_ratio_1_only_appends(name):
    layer = random_layer(n=40)
    states, _ = decode(METHODS[name], layer, steps=5, budget=KV_HEADS * 40)
    kept = states[-1].kept
    assert kept.keys.shape[1] == 45 and not kept.bias.any()
    assert torch.equal(kept.values[:, :40], keep_all(layer).values)


@every_method
def test_closed_gate_is_native_eviction(name):
    method = replace(METHODS[name], gate=1.0)
    states, attended = decode(method, random_layer())
    for after, (keys, values) in zip(states[1:], attended, strict=True):
        for kept, before in ((after.kept.keys, keys), (after.kept.values, values)):
            distance = torch.cdist(kept, before)
            assert bool((distance.amin(-1) < 1e-6).all())
            found = distance.argmin(-1)
            assert torch.equal(kept, before.gather(1, found[..., None].expand_as(kept)))
        assert not after.kept.bias.any()


@every_method
def test_steps_are_pure(name):
    layer = random_layer()
    first, _ = decode(METHODS[name], layer)
    again, _ = decode(METHODS[name], layer)
    for x, y in zip(first, again, strict=True):
        assert torch.equal(x.kept.keys, y.kept.keys) and torch.equal(x.kept.values, y.kept.values)


@every_method
def test_heads_do_not_mix(name):
    method = METHODS[name]
    if getattr(method, "filter", "") == "official" or getattr(method, "stochastic", False):
        method = replace(method, **({"filter": "per_head"} if isinstance(method, D2O) else {"stochastic": False}))
    layer = random_layer()
    other = replace(layer, keys=layer.keys.clone(), values=layer.values.clone())
    other.keys[1] += 1
    other.values[1] -= 1
    (x, *_), (y, *_) = decode(method, layer)[0][::-1], decode(method, other)[0][::-1]
    assert torch.equal(x.kept.keys[0], y.kept.keys[0]) and torch.equal(x.kept.values[0], y.kept.values[0])


@every_method
@pytest.mark.parametrize("kind", ["none", "votes", "attention"])
def test_compensation_accumulates(name, kind):
    """Votes: an entry takes over those of what it takes, and nothing is lost but what is dropped."""
    method = replace(METHODS[name], compensation=kind)
    states, _ = decode(method, random_layer(), steps=20)
    ratio = torch.stack([s.ratio.sum(1) for s in states])
    assert bool((states[-1].ratio >= 1 - 1e-6).all())
    if kind == "none":
        assert not states[-1].kept.bias.any()
    else:
        torch.testing.assert_close(states[-1].kept.bias, method.alpha * states[-1].ratio.log())
    if kind == "votes":
        assert bool((ratio.diff(dim=0) <= 1 + 1e-4).all())  # a token brings one vote
        assert not torch.equal(ratio[0], ratio[-1])


def test_weightedkv_keeps_every_vote():
    """It merges all that it evicts, so votes count all tokens."""
    states, _ = decode(WeightedKV(decode="native", compensation="votes"), random_layer(), steps=10)
    for i, state in enumerate(states):
        torch.testing.assert_close(state.ratio.sum(1), torch.full((KV_HEADS,), 96.0 + i))


def test_weightedkv_step_by_hand():
    """The lowest average goes into its right neighbour; statistics of the neighbour stay."""
    method = WeightedKV(decode="native")
    layer = random_layer()
    (before, after), [(keys, values)] = decode(method, layer, steps=1)
    grown = torch.cat([before.kept.positions, torch.full((2, 1), 96)], 1)
    gone = [sorted(set(x) - set(y)) for x, y in zip(grown.tolist(), after.kept.positions.tolist(), strict=True)]
    for head, (position,) in enumerate(gone):
        index = grown[head].tolist().index(position)
        average = (after.mass / after.reads)[head, index]  # the neighbour's, which moved into the slot
        pair = values[head, index : index + 2]
        share = (after.kept.values[head, index] - pair[1]) / (pair[0] - pair[1])
        torch.testing.assert_close(share, share.mean().expand_as(share), rtol=1e-3, atol=1e-4)
        lost = average * share.mean() / (1 - share.mean())  # its average, from the weights that were used
        others = (after.mass / after.reads)[head, 4:12]
        assert bool((lost <= others + 1e-5).all())
        assert torch.equal(after.kept.keys[head, index], keys[head, index + 1])


def test_keepkv_remembers_the_last_queries():
    """Scores in memory are the logits of the last `window` queries, of an entry that nothing merged into too."""
    method = KeepKV(decode="native", threshold=1.0, window=8)  # nothing is merged
    layer = random_layer(window=8)
    state = method.start(layer, KV_HEADS * M)
    whole = first_memory(layer, 8)
    index = state.kept.positions[:, None].expand(-1, 9, -1)
    torch.testing.assert_close(state.memory, whole.gather(2, index))
    after = method.step(state, torch.ones(HEADS, 16), torch.ones(2, 16), torch.ones(2, 16), torch.rand(HEADS, M + 1))
    assert after.memory.shape == (KV_HEADS, 9, M)
    assert bool(after.memory[:, :7, -1].isinf().all()) and bool((after.memory[:, 7, -1] == 16 / 4).all())


def test_cam_draws_change_with_the_token():
    method = CaM(stochastic=True)
    draws = [method.draw(torch.full((2, 64), 0.5), stream) for stream in (1, 2)]
    assert not torch.equal(*draws)


def test_the_contract():
    assert all(isinstance(method, NativeMethod) for method in METHODS.values())
    assert not isinstance(LookM(), NativeMethod)
    with pytest.raises(ValueError, match="decode='often' of D2O; must be 'one_shot' or 'native'"):
        D2O(decode="often")


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("name", ["d2o", "keepkv", "cam", "weightedkv"])
def test_generation(family, name):
    """A model generates with it; at ratio 1 it says what the full cache says."""
    model, ids = build(family), tokens(48)
    model.generation_config.eos_token_id = None
    method = selkv.method_named(name, decode="native", compensation="votes", gate="cosine")

    def text(method, ratio):
        inputs = selkv.compress(model, ids, method, ratio)
        return model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, 48:].tolist()

    assert len(text(method, "0.4")) == 7
    assert text(method, "1") == text(selkv.method_named("full"), "1")
