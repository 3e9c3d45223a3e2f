"""What holds for every method of `configs/method/` that declares an exact budget, whoever adds it."""

import importlib
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from selkv.budget import kept_per_head
from selkv.errors import UserError
from selkv.method import Method
from selkv.named import method_named
from selkv.state import Kept, LayerState, Needs
from tests.baselines.layers import random_layer

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "method"
EVICTION = ("streamingllm", "h2o", "vatp", "snapkv", "pyramidkv", "chunkkv", "lava", "evolkv", "rocketkv")
MOST_LAYERS = 4


def config(name: str) -> DictConfig:
    # beside the run's seed, which methods that draw refer to
    root = OmegaConf.create({"seed": 0, "method": OmegaConf.load(FOLDER / f"{name}.yaml")})
    return root.method


def method_of(name: str, layers: int = MOST_LAYERS) -> Method:
    searched = {"weights": [1.0, 0.2, 3.0, 0.0][:layers]} if name == "evolkv" else {}
    return method_named(name, **searched)


def is_exact(name: str) -> bool:
    """Methods that import and whose class declares the exact budget."""
    module, _, cls = config(name)._target_.rpartition(".")
    return importlib.util.find_spec(module) is not None and getattr(importlib.import_module(module), cls).exact


NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "full" and is_exact(path.stem))
every_method = pytest.mark.parametrize("name", NAMES)
ratios = st.sampled_from([Fraction(x) for x in ("0.01", "0.05", "0.29", "1/3", "0.5", "0.58", "0.9", "0.99", "1")])


def run(method: Method, layers: list[LayerState], ratio: Fraction) -> tuple[list[int], list[Kept]]:
    budgets = method.budgets(SimpleNamespace(layers=layers), ratio)
    kept = [
        method.compress(replace(layer, leader=None if method.leader(i) == i else layers[method.leader(i)]), budget)
        for i, (layer, budget) in enumerate(zip(layers, budgets, strict=True))
    ]
    return budgets, kept


def layers_of(method: Method, lengths: list[int], ratio: Fraction, seed: int = 0, **options: Any) -> list[LayerState]:
    needs = Needs(0)
    for n in lengths:
        needs = needs.union(method.needs(n, kept_per_head(n, ratio)))
    longest, count = max(lengths), len(lengths)
    return [
        random_layer(n, seed=seed + i, needs=needs, first=longest - n, layer=i, layers=count, **options)
        for i, n in enumerate(lengths)
    ]


def well_formed(kept: Kept, layer: LayerState, budget: int) -> None:
    true = kept.positions >= 0
    assert kept.entries == budget
    assert bool(true.any(1).all()), "a head without an entry"
    assert torch.equal(true, true.sort(dim=1, descending=True, stable=True).values), "padding is not last"
    assert torch.equal(kept.bias == float("-inf"), ~true)
    ordered = torch.where(true, kept.positions, layer.positions[-1] + 1 + torch.arange(true.shape[1]))
    assert bool((ordered.diff(dim=1) > 0).all()), "positions not ascending and unique"
    assert bool((kept.positions[true] >= layer.positions[0]).all())
    assert kept.keys.shape[:2] == kept.values.shape[:2] == kept.bias.shape == kept.positions.shape
    assert kept.keys.dtype == layer.keys.dtype and kept.values.dtype == layer.values.dtype
    for x in (kept.keys, kept.values, kept.bias):
        assert bool(x[true].isfinite().all())


@every_method
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 150),
    window=st.integers(1, 150),
    layers=st.integers(1, MOST_LAYERS),
    kv_heads=st.sampled_from([1, 2, 3]),
    group=st.integers(1, 2),
    ratio=ratios,
)
@example(n=1, window=1, layers=2, kv_heads=2, group=2, ratio=Fraction("0.5"))
@example(n=2, window=2, layers=2, kv_heads=2, group=2, ratio=Fraction("0.5"))
@example(n=33, window=33, layers=3, kv_heads=2, group=2, ratio=Fraction("0.97"))
@example(n=149, window=31, layers=4, kv_heads=2, group=2, ratio=Fraction("0.25"))
def test_budget_is_exact(
    name: str, n: int, window: int, layers: int, kv_heads: int, group: int, ratio: Fraction
) -> None:
    method = method_of(name, layers)
    lengths = [min(n, window) if i % 2 else n for i in range(layers)]  # every other layer sees a sliding window
    states = layers_of(method, lengths, ratio, seed=n, heads=kv_heads * group, kv_heads=kv_heads, d=8)
    budgets, kept = run(method, states, ratio)
    assert sum(budgets) == sum(kv_heads * kept_per_head(length, ratio) for length in lengths)
    for layer, budget, result in zip(states, budgets, kept, strict=True):
        assert kv_heads <= budget <= kv_heads * layer.n
        well_formed(result, layer, budget)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_yaml_lists_every_hyperparameter(name: str) -> None:
    """What is not in the file cannot be set on the command line."""
    options = {key: value for key, value in config(name).items() if key != "_target_"}
    module, _, cls = config(name)._target_.rpartition(".")
    assert set(options) == {field.name for field in fields(getattr(importlib.import_module(module), cls)) if field.init}


@every_method
def test_values_of_no_type_are_refused(name: str) -> None:
    searched = {"weights": [1.0] * MOST_LAYERS} if name == "evolkv" else {}
    for key in config(name).keys() - {"_target_"}:
        for value in ([[]], float("nan"), True if not isinstance(config(name)[key], bool) else "true"):
            with pytest.raises(UserError, match=f"method {name}: .*{key}"):
                method_named(name, **{**searched, key: value})


@every_method
@pytest.mark.parametrize("n", [1, 7, 40])
def test_ratio_1_is_the_full_cache(name: str, n: int) -> None:
    method = method_of(name)
    layers = layers_of(method, [n] * MOST_LAYERS, Fraction(1))
    for layer, kept in zip(layers, run(method, layers, Fraction(1))[1], strict=True):
        assert torch.equal(kept.keys, layer.keys) and torch.equal(kept.values, layer.values)
        assert torch.equal(kept.positions, layer.positions.expand_as(kept.positions))
        assert not kept.bias.any()


@every_method
def test_permuting_heads_permutes_results(name: str) -> None:
    method, ratio, order = method_of(name), Fraction("0.3"), torch.tensor([2, 0, 3, 1])
    layers = layers_of(method, [97] * MOST_LAYERS, ratio, heads=8, kv_heads=4)
    query_order = (order[:, None] * 2 + torch.arange(2)).flatten()
    moved = [
        replace(
            x,
            keys=x.keys[order],
            values=x.values[order],
            queries=x.queries[query_order],
            column_mass=None if x.column_mass is None else x.column_mass[query_order],
            block_attention={b: a[query_order] for b, a in x.block_attention.items()},
        )
        for x in layers
    ]
    for before, after in zip(run(method, layers, ratio)[1], run(method, moved, ratio)[1], strict=True):
        assert torch.equal(before.positions[order], after.positions)
        for x, y in zip(before[:3], after[:3], strict=True):
            torch.testing.assert_close(x[order], y, rtol=1e-4, atol=1e-5)


@every_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_what_float32_keeps(name: str, dtype: torch.dtype) -> None:
    # statistics are float32 whatever the dtype, so the same numbers in float32 give the same sets
    method, ratio = method_of(name), Fraction("0.3")
    half = layers_of(method, [97] * MOST_LAYERS, ratio, dtype=dtype)
    full = [replace(x, keys=x.keys.float(), values=x.values.float(), queries=x.queries.float()) for x in half]
    (budgets, kept), (_, expected) = run(method, half, ratio), run(method, full, ratio)
    for layer, budget, found, wanted in zip(half, budgets, kept, expected, strict=True):
        well_formed(found, layer, budget)
        assert torch.equal(found.positions, wanted.positions)
        torch.testing.assert_close(found.values.float(), wanted.values, rtol=1e-2, atol=1e-2)


@every_method
def test_nothing_is_changed_in_place(name: str) -> None:
    method, ratio = method_of(name), Fraction("0.3")
    layers, copies = (layers_of(method, [97] * MOST_LAYERS, ratio) for _ in range(2))
    run(method, layers, ratio)
    for layer, copy in zip(layers, copies, strict=True):
        assert torch.equal(layer.keys, copy.keys) and torch.equal(layer.values, copy.values)
        assert torch.equal(layer.queries, copy.queries)
        if layer.column_mass is not None and copy.column_mass is not None:
            assert torch.equal(layer.column_mass, copy.column_mass)


@pytest.mark.parametrize("name", EVICTION)
def test_eviction_keeps_entries_bit_for_bit(name: str) -> None:
    method, ratio = method_of(name), Fraction("0.3")
    layers = layers_of(method, [97] * MOST_LAYERS, ratio)
    for layer, kept in zip(layers, run(method, layers, ratio)[1], strict=True):
        true = kept.positions >= 0
        for x, source in ((kept.keys, layer.keys), (kept.values, layer.values)):
            gathered = source.gather(1, kept.positions.clamp(min=0)[..., None].expand_as(x))
            assert torch.equal(x[true], gathered[true])
        assert not kept.bias[true].any()


@pytest.mark.parametrize("name", EVICTION)
@pytest.mark.parametrize("n", [2, 5, 34, 70])
def test_any_budget_between_one_entry_a_head_and_all(name: str, n: int) -> None:
    # also one that the heads do not divide, e.g. from layers with different numbers of heads
    method = method_of(name)
    layer = layers_of(method, [n], Fraction(1, 2), heads=6, kv_heads=3)[0]
    for budget in {3, 4, 3 * n // 2, 3 * n - 1, 3 * n}:
        well_formed(method.compress(layer, budget), layer, budget)


def test_the_eviction_family_is_covered() -> None:
    assert set(EVICTION) <= set(NAMES)
