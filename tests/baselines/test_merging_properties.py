"""What holds for every merging method and every option of it (budgets, identity and heads: test_method_properties)."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from baselines.cam import CaM
from baselines.d2o import D2O
from baselines.ems import EMS
from baselines.explore import Merge, kept_mask
from baselines.h2o import H2O
from baselines.keepkv import KeepKV
from baselines.kvmerger import KVMerger
from baselines.lookm import LookM
from baselines.merging import Gated, Merging, received
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.weightedkv import WeightedKV
from selkv.errors import UserError
from selkv.state import LayerState, keep
from tests.baselines.merging_layers import random_layer

CLOSED = 1.0  # a threshold that only equal directions reach
METHODS: dict[str, Gated] = {
    "lookm": LookM(),
    "lookm averaged": LookM(merge="averaged", filter="per_head"),
    "lookm weighted": LookM(merge="weighted", filter="official"),
    "lookm window": LookM(scope="window", reach=6, selection="snapkv"),
    "kvmerger": KVMerger(),
    "kvmerger rms": KVMerger(sigma_mode="rms", value_scale="set_size"),
    "kvmerger fixed point": KVMerger(sigma_mode="fixed_point", sinks=2),
    "kvmerger on evicted": KVMerger(mode="on_evicted", threshold=0.3),
    "d2o": D2O(),
    "d2o code": D2O(weights="code", filter="official", selection="streaming"),
    "weightedkv": WeightedKV(),
    "weightedkv group": WeightedKV(order="group", score_queries="window"),
    "ems": EMS(recent=8, threshold=0.05),
    "keepkv": KeepKV(threshold=0.2),
    "keepkv convex": KeepKV(threshold=0.2, keys="convex", score="mean", selection="release"),
    "keepkv fixed": KeepKV(threshold=0.2, keys="fixed", compensation="attention", alpha=0.5),
    "cam": CaM(),
    "cam drawn": CaM(stochastic=True, selection="snapkv", merge_budget=4),
    **{
        f"merge {routing} {rule}": Merge(selection="baselines.h2o.H2O", routing=routing, rule=rule, merge_keys=True)
        for routing, rule in [
            ("nearest_key", "pivotal"),
            ("nearest_position", "norm"),
            ("right_neighbour", "mean"),
            ("bucket", "attention"),
            ("coattention", "similarity"),
        ]
    },
}
# value_scale=set_size, sums of cosines over counts, and CaM's additions are not convex by definition
CONVEX = [x for x in METHODS if x not in ("lookm weighted", "d2o code", "kvmerger rms", "cam", "cam drawn")]
every_method = pytest.mark.parametrize("name", METHODS)


def evicted_only(method: Gated, layer: LayerState, budget: int):
    """What the method's selection alone keeps."""
    if isinstance(method, Merging):
        return keep(layer, method.survivors(layer, budget // layer.kv_heads))
    return H2O().compress(layer, budget)


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_closed_gate_is_plain_eviction(name, dtype):
    layer = random_layer()
    layer = replace(layer, keys=layer.keys.to(dtype), values=layer.values.to(dtype))
    closed = replace(METHODS[name], gate=CLOSED).compress(layer, 2 * 24)
    plain = evicted_only(METHODS[name], layer, 2 * 24)
    assert torch.equal(closed.keys, plain.keys) and torch.equal(closed.values, plain.values)
    assert torch.equal(closed.positions, plain.positions) and not closed.bias.any()


@every_method
def test_open_gate_merges_as_published(name):
    """A threshold below every cosine is the method without a gate; and something is merged at all."""
    layer = random_layer()
    layer = replace(layer, keys=layer.keys / 8)  # close enough for KVMerger's narrowest kernel
    method = METHODS[name]
    bare, opened, plain = (
        method.compress(layer, 48),
        replace(method, gate=-1.0).compress(layer, 48),
        evicted_only(method, layer, 48),
    )
    for x, y in zip(bare[:4], opened[:4], strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-6)
    assert not torch.equal(bare.values, plain.values)


@every_method
def test_cosine_gate_ignores_opposed_values(name):
    """Values of evicted entries that point away from every survivor's leave no trace."""
    layer = random_layer()
    kept = kept_mask(evicted_only(METHODS[name], layer, 48).positions, layer)
    direction = torch.ones(16)
    values = torch.where(kept[..., None], direction, -direction) * layer.values.abs()
    layer = replace(layer, values=values)
    gated = replace(METHODS[name], gate="cosine").compress(layer, 48)
    plain = evicted_only(METHODS[name], layer, 48)
    if torch.equal(gated.positions, plain.positions):  # scores that read values may select others
        assert torch.equal(gated.values, plain.values) and torch.equal(gated.keys, plain.keys)
    assert gated.counters["mean_gate"] == 0


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize("gate", ["none", "cosine"])
def test_equal_values_stay_equal(name, gate):
    layer = random_layer()
    layer = replace(layer, values=layer.values[:, :1].expand_as(layer.values).contiguous())
    kept = replace(METHODS[name], gate=gate).compress(layer, 48)
    torch.testing.assert_close(kept.values, layer.values[:, :24], rtol=1e-5, atol=1e-5)


@every_method
@pytest.mark.parametrize("awkward", ["zero keys", "zero values", "duplicates", "one entry left", "huge"])
@pytest.mark.parametrize("gate", ["none", "cosine"])
def test_finite_on_awkward_layers(name, awkward, gate):
    layer = random_layer(n=64)
    layer = {
        "zero keys": lambda: replace(layer, keys=torch.zeros_like(layer.keys)),
        "zero values": lambda: replace(layer, values=torch.zeros_like(layer.values)),
        "duplicates": lambda: replace(
            layer, keys=layer.keys[:, :1].repeat(1, 64, 1), values=layer.values[:, :1].repeat(1, 64, 1)
        ),
        "one entry left": lambda: layer,
        "huge": lambda: replace(layer, keys=layer.keys * 60, values=layer.values * 3e4),
    }[awkward]()
    budget = 2 if awkward == "one entry left" else 2 * 20
    for compensation in ("none", "attention", "votes"):
        method = replace(METHODS[name], gate=gate, compensation=compensation)
        kept = method.compress(layer, budget)
        assert kept.entries == budget
        assert all(bool(x.isfinite().all()) for x in kept[:3])


@every_method
def test_compensation_is_an_option_of_each(name):
    """alpha * log of what a survivor absorbed; none is no bias; more votes than entries there cannot be."""
    layer, method = random_layer(), METHODS[name]
    assert not replace(method, compensation="none").compress(layer, 48).bias.any()
    votes = replace(method, compensation="votes", alpha=1.0).compress(layer, 48)
    assert bool((votes.bias >= 0).all()) and bool(votes.bias.any())
    assert bool((votes.bias.exp().sum(1) <= layer.n + 1e-3).all())
    ratio = replace(method, compensation="attention", alpha=1.0).compress(layer, 48).bias
    half = replace(method, compensation="attention", alpha=0.5).compress(layer, 48).bias
    torch.testing.assert_close(half, ratio / 2)


def test_lookm_with_gate_and_compensation_keeps_the_attention_mass():
    """With everything merged and the gate open, sum of a * R is the whole attention of the window."""
    layer = random_layer()
    method = LookM(compensation="attention", score_queries="window")
    kept = method.compress(layer, 48)
    mass = received(layer, "window", 32)
    total = (mass.gather(1, kept.positions) * kept.bias.exp()).sum(1)
    torch.testing.assert_close(total, mass.sum(1))


def test_budget_must_divide_among_heads():
    with pytest.raises(ValueError, match="does not divide among 2 KV heads"):
        LookM().compress(random_layer(), 49)


def test_explored_merge_follows_its_selection():
    """Ragged sets, layer budgets and needs are those of the selection."""
    merge = Merge(selection={"_target_": "baselines.pyramidkv.PyramidKV", "window": 8}, window=16)
    assert merge.selector == PyramidKV(window=8)
    assert merge.needs(96, 24).window == 16
    layer = random_layer()
    ragged = Merge(selection=SnapKV(window=8)).compress(layer, 49)
    assert ragged.entries == 49 and torch.equal(ragged.positions, SnapKV(window=8).compress(layer, 49).positions)
    assert bool((ragged.bias[ragged.positions < 0] == float("-inf")).all())
    with pytest.raises(UserError, match=r"cannot import _target_ 'baselines.snapkv.Nothing'"):
        Merge(selection="baselines.snapkv.Nothing")


@pytest.mark.parametrize(("share", "scale"), list(product([0.2, 0.6], [1.0, 5.0])))
def test_d2o_layers_share_the_same_total(share, scale):
    layers = [replace(random_layer(i), column_mass=random_layer(i).column_mass ** scale) for i in range(4)]
    ratio = Fraction(str(share))
    budgets = D2O(allocation="variance").budgets(SimpleNamespace(layers=layers), ratio)
    assert sum(budgets) == sum(D2O().budgets(SimpleNamespace(layers=layers), ratio))
    assert len(set(budgets)) > 1


def test_example_of_the_documentation():
    """The config in docs/extending.md: PyramidKV's sets, merged to the right."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    block = page[page.index("    # @package methods.pyramid_right") :].split("\n\n")[0]
    method = instantiate(OmegaConf.create(dedent(block)))
    layer = random_layer()
    kept = method.compress(layer, 48)
    assert torch.equal(kept.positions, PyramidKV(window=16).compress(layer, 48).positions)
    assert kept.counters["routed"] > 0 and bool(kept.bias.any())


def test_fraction_counts_among_what_the_threshold_leaves():
    layer = random_layer()
    strict = Merge(threshold=0.9).compress(layer, 48).counters["routed"]
    assert 0 < strict < 0.5
    assert Merge(threshold=0.9, fraction=0.9).compress(layer, 48).counters["routed"] == strict
    assert Merge(fraction=0.25).compress(layer, 48).counters["routed"] == 0.25
