"""What is ours in the eviction family: exact budgets, small budgets, and rules that no original fixes."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from baselines.chunkkv import ChunkKV
from baselines.evolkv import EvolKV
from baselines.h2o import H2O
from baselines.lava import LAVa
from baselines.pyramidkv import PyramidKV
from baselines.rocketkv import RocketKV
from baselines.snapkv import SnapKV
from baselines.streamingllm import StreamingLLM
from baselines.vatp import VATP
from selkv.errors import UserError
from selkv.observation import observed
from selkv.scores import spread, top_mask
from selkv.state import LayerState
from tests.baselines.layers import full_attention, random_layer

HALF = Fraction(1, 2)


def stack(count: int, n: int, kv_heads: int = 2) -> SimpleNamespace:
    return SimpleNamespace(
        layers=[SimpleNamespace(n=n, kv_heads=kv_heads, layer=i, layers=count) for i in range(count)]
    )


def test_unprotected_window_entries_score_by_the_queries_that_see_them() -> None:
    draw = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(4, 20, 8, generator=draw), torch.randn(2, 20, 8, generator=draw)
    attention = full_attention(queries, keys, 8**-0.5)
    found = observed(attention[:, -6:], recent=2)
    for j in range(18):
        rows = [attention[:, i, j] for i in range(14, 20) if i >= j]
        torch.testing.assert_close(found[:, j], sum(rows, torch.zeros(4)) / len(rows))


@pytest.mark.parametrize("budget, recent", [(40, 32), (33, 32), (32, 16), (31, 15), (2, 1), (1, 1)])
def test_half_of_a_budget_within_the_window_is_recent(budget: int, recent: int) -> None:
    assert SnapKV().recent(100, budget) == recent
    kept = SnapKV().compress(random_layer(100), 2 * budget).positions
    assert (kept[:, -recent:] == torch.arange(100 - recent, 100)).all()


def test_ties_go_to_the_lower_position() -> None:
    assert top_mask(torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]]), 2).tolist() == [[False, True, True, False, False]]
    assert spread(11, 4).tolist() == [3, 3, 3, 2]
    layer = random_layer(50)
    same = replace(layer, queries=torch.zeros_like(layer.queries))  # uniform attention: everything ties
    assert SnapKV(window=4, kernel=1).compress(same, 2 * 10).positions[0].tolist() == [0, 1, 2, 3, 4, 5, 46, 47, 48, 49]


def test_order_of_pooling_and_reduction_matters_for_max_only() -> None:
    layer = random_layer(80)
    for pooling, reduce, same in [
        ("avg", "mean", True),
        ("avg", "sum", True),
        ("max", "max", True),
        ("max", "mean", False),
    ]:
        first, after = (SnapKV(pooling=pooling, reduce=reduce, pool_first=x).scores(layer, 32) for x in (True, False))
        assert torch.allclose(first, after) == same, (pooling, reduce)


@pytest.mark.parametrize(
    "n, ratio", [(4096, Fraction(1, 4)), (1000, Fraction(1, 20)), (300, Fraction(3, 5)), (64, HALF)]
)
def test_pyramid_is_linear_around_the_mean(n: int, ratio: Fraction) -> None:
    budgets = PyramidKV(window=16).budgets(stack(8, n), ratio)
    kept = n * ratio.numerator // ratio.denominator
    high = min(2 * (kept - 16) * (1 - 1 / 40), n - 16)
    step = 2 * (high - (kept - 16)) / 7
    assert sum(budgets) == 8 * 2 * kept
    assert all(abs(b / 2 - 16 - (high - i * step)) < 1 for i, b in enumerate(budgets)), budgets
    assert all(b % 2 == 0 for b in budgets)  # whole heads


def naive_chunks(scores: Tensor, room: int, size: int) -> set[int]:
    """Chunks one by one, then tokens one by one."""
    chunks = [list(range(a, min(a + size, len(scores)))) for a in range(0, len(scores), size)]
    chosen: set[int] = set()
    for chunk in sorted(chunks, key=lambda c: -float(scores[c].mean())):
        if len(chosen) + len(chunk) > room:
            return chosen | set(sorted(chunk, key=lambda j: -float(scores[j]))[: room - len(chosen)])
        chosen |= set(chunk)
    return chosen


@pytest.mark.parametrize("n", [157, 160, 35, 12])
@pytest.mark.parametrize("size", [1, 10, 20])
def test_chunks_against_a_loop(n: int, size: int) -> None:
    method, layer = ChunkKV(chunk=size, window=8), random_layer(n)
    for kept in range(1, n):
        recent = method.recent(n, kept)
        expected = naive_chunks(method.scores(layer, recent).mean(0), kept - recent, size) | set(range(n - recent, n))
        assert [set(row) for row in method.compress(layer, 2 * kept).positions.tolist()] == [expected] * 2


def test_index_reuse_takes_the_leaders_choice() -> None:
    method, layers = ChunkKV(reuse=3), [random_layer(90, seed=i, layer=i, layers=5) for i in range(5)]
    assert [method.leader(i) for i in range(5)] == [0, 0, 0, 3, 3]
    alone = [method.compress(layer, 2 * 45).positions for layer in layers]
    led = method.compress(replace(layers[2], leader=layers[0]), 2 * 45)
    assert torch.equal(led.positions, alone[0]) and not torch.equal(led.positions, alone[2])
    assert torch.equal(led.keys[0], layers[2].keys[0, alone[0][0]])


def focused(n: int, factor: float, seed: int) -> LayerState:
    layer = random_layer(n, seed=seed)
    return replace(layer, queries=layer.queries * factor)


def test_lava_gives_diffuse_layers_more() -> None:
    layers = [focused(100, factor, i) for i, factor in enumerate((3.0, 1.0, 0.1))]
    budgets = LAVa(window=8).budgets(SimpleNamespace(layers=layers), Fraction(2, 5))
    assert budgets == sorted(budgets) and budgets[0] < budgets[-1] and sum(budgets) == 3 * 2 * 40
    entropies = [LAVa(window=8).entropy(layer, 8) for layer in layers]
    for budget, entropy in zip(budgets, entropies, strict=True):
        assert abs(budget - 16 - entropy / sum(entropies) * 3 * 2 * 32) < 1


def test_layers_that_differ_in_length_and_heads_share_in_proportion() -> None:
    long, short, wide = random_layer(100), random_layer(50), random_layer(100, kv_heads=4)
    uniform = [replace(x, queries=torch.zeros_like(x.queries)) for x in (long, short, wide)]  # entropy 1
    prefill = SimpleNamespace(layers=[replace(x, layer=i, layers=3) for i, x in enumerate(uniform)])
    for method in (SnapKV(window=8), LAVa(window=8, kernel=1), EvolKV(window=8, weights=(1.0,) * 3)):
        budgets = method.budgets(prefill, Fraction(2, 5))
        assert all(abs(b - wanted) <= 1 for b, wanted in zip(budgets, (80, 40, 160), strict=True)), (method, budgets)
    assert EvolKV(window=8, weights=(1.0, 0.0, 1.0)).budgets(prefill, Fraction(2, 5)) == [88, 16, 176]


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_lava_ranks_over_the_layer_above_the_floor(alpha: float) -> None:
    layer = random_layer(100)
    layer = replace(layer, values=layer.values * torch.tensor([1.0, 50.0])[:, None, None])
    method = LAVa(window=8, alpha=alpha, pooling="avg", kernel=5)
    kept = method.compress(layer, 2 * 40 + 1)
    counts = (kept.positions >= 0).sum(1)
    scores, floor = method.scores(layer, 8), int(alpha * 32.5)
    assert counts.sum() == 81 and (counts >= floor + 8).all()
    if alpha < 1:  # head 1's values are so large that it takes all that is open
        assert counts.tolist() == [floor + 8, 81 - floor - 8]
    for head in range(2):
        best = scores[head].sort(descending=True, stable=True).indices[: int(counts[head]) - 8]
        assert set(best.tolist()) | set(range(92, 100)) == set(kept.positions[head, : counts[head]].tolist())


def test_evolkv_with_equal_weights_is_snapkv() -> None:
    layer, prefill = random_layer(90), stack(4, 90)
    assert EvolKV(weights=(2.0,) * 4).budgets(prefill, HALF) == SnapKV().budgets(prefill, HALF)
    x, y = EvolKV(weights=(1.0,)).compress(layer, 90), SnapKV().compress(layer, 90)
    assert torch.equal(x.positions, y.positions)


def test_evolkv_weights_scale_the_part_before_the_window() -> None:
    budgets = EvolKV(weights=(1.0, 3.0), window=10).budgets(stack(2, 400), Fraction(1, 8))
    assert budgets == [2 * (10 + 20), 2 * (10 + 60)]


def test_evolkv_reads_its_budget_file_into_its_weights(tmp_path: Path) -> None:
    file = tmp_path / "budgets.json"
    file.write_text(json.dumps({"model": "m", "ratio": "0.25", "seed": 0, "sample_ids": ["a"], "weights": [1, 0.5]}))
    assert EvolKV(budget_file=str(file)).weights == (1.0, 0.5)


@pytest.mark.parametrize("text", ["{}", "[", '{"weights": 3}', '{"weights": ["x"]}'])
def test_evolkv_names_a_broken_budget_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "budgets.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"budgets\.json.*selkv search"):
        EvolKV(budget_file=str(file))


def test_evolkv_without_budgets_says_how_to_make_them(tmp_path: Path) -> None:
    for options in ({}, {"budget_file": str(tmp_path / "none.json")}, {"budget_file": "x", "weights": (1.0,)}):
        with pytest.raises(ValueError, match=r"selkv search model="):
            EvolKV(**options)
    with pytest.raises(UserError, match="weights for 3 layers and the model has 4"):
        EvolKV(weights=(1.0, 1.0, 1.0)).budgets(stack(4, 90), HALF)


def test_streamingllm_keeps_sinks_and_recent() -> None:
    layer = random_layer(30)
    assert StreamingLLM().compress(layer, 2 * 7).positions[1].tolist() == [0, 1, 2, 3, 27, 28, 29]
    assert StreamingLLM().compress(layer, 2 * 3).positions[0].tolist() == [0, 1, 2]


def test_h2o_and_vatp_keep_half_recent() -> None:
    layer = random_layer(100)
    for method in (H2O(), VATP()):
        assert (method.compress(layer, 2 * 31).positions[:, -15:] == torch.arange(85, 100)).all()
    assert (VATP().compress(layer, 2 * 31).positions[:, :7] == torch.arange(7)).all()  # a quarter are sinks
    mass = layer.column_mass
    assert mass is not None
    expected = mass.unflatten(0, (2, 2)).mean(1) * layer.values.abs().sum(-1)
    torch.testing.assert_close(VATP(sinks=0).scores(layer, 31), expected)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SnapKV(kernel=4), "kernel=4 of SnapKV; must be odd"),
        (lambda: SnapKV(pooling="mean"), "pooling='mean' of SnapKV; must be 'avg' or 'max'"),
        (lambda: H2O(decode="nativ"), "decode='nativ'"),
        (lambda: H2O(decode="native", normalise=True), "use decode=one_shot"),
        (lambda: VATP(norm="l3"), "norm='l3' of VATP; must be"),
        (lambda: VATP(queries=0), "queries=0"),
        (lambda: PyramidKV(beta=0), "beta=0"),
        (lambda: PyramidKV(rule="paper"), "must be 'exact', 'kvcf' or 'kvpress'"),
        (lambda: ChunkKV(chunk=0), "chunk=0"),
        (lambda: LAVa(alpha=2), "alpha=2"),
        (lambda: RocketKV(reads=1.5), "reads=1.5"),
        (lambda: RocketKV(compression=0.5), "compression=0.5"),
        (lambda: StreamingLLM(sinks=-1), "sinks=-1"),
        (lambda: EvolKV(weights=(1.0, -1.0)), "must be numbers of at least 0"),
    ],
)
def test_wrong_hyperparameters_are_named(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError) as error:
        make()
    assert message in str(error.value)


def test_borrowed_rules_declare_their_budgets_approximate() -> None:
    assert all(m.exact for m in (PyramidKV(), ChunkKV(), LAVa()))
    assert not any(m.exact for m in (PyramidKV(rule="kvcf"), ChunkKV(kvpress_exact=True), LAVa(capacity=64)))
