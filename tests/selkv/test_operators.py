"""The operators one by one: exact budgets, ties, sets, pooling, routing, merging, ratios."""

from fractions import Fraction
from math import floor

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selkv.budget import apportion, kept_per_head, parse_ratio
from selkv.compensate import attention_ratio, compensation, votes
from selkv.errors import UserError
from selkv.merge import absorb, cosine, gate_between, gate_weight, nearest_kept, sum_by_target, weighted_merge
from selkv.routing import bucket_leaders, nearest_candidate, own_or, strongest_candidate
from selkv.scores import group_reduce, indices, last, mask_of, pool, protect, rank, spread, top, top_mask
from selkv.state import take

quick = settings(max_examples=60, deadline=None, derandomize=True)


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# budgets


@pytest.mark.parametrize(
    ("text", "value"), [("0.25", (1, 4)), (0.1, (1, 10)), ("1/3", (1, 3)), (1, (1, 1)), ("1e-2", (1, 100))]
)
def test_ratios_are_read_exactly(text: object, value: tuple[int, int]) -> None:
    assert parse_ratio(text) == Fraction(*value)


@pytest.mark.parametrize("text", ["0", "-0.5", "1.01", "", "nan", "half", None, True, "1/0", float("inf")])
def test_other_ratios_are_refused(text: object) -> None:
    with pytest.raises(UserError, match="ratio") as refusal:
        parse_ratio(text)
    assert "\n" not in str(refusal.value)


@quick
@given(n=st.integers(1, 10**6), hundredths=st.integers(1, 100))
@example(n=100, hundredths=29)
@example(n=50, hundredths=58)
def test_kept_entries_are_exact(n: int, hundredths: int) -> None:
    ratio = parse_ratio(hundredths / 100)
    assert kept_per_head(n, ratio) == max(1, floor(Fraction(hundredths, 100) * n)) == max(1, n * hundredths // 100)


@quick
@given(data=st.data(), count=st.integers(1, 12))
def test_apportion(data: st.DataObject, count: int) -> None:
    weights = data.draw(st.lists(st.floats(0, 100), min_size=count, max_size=count))
    caps = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    total = data.draw(st.integers(0, sum(caps)))
    shares = apportion(weights, total, caps)
    assert sum(shares) == total
    assert all(0 <= share <= cap for share, cap in zip(shares, caps, strict=True))
    for i in range(count):
        for j in range(count):
            if weights[i] > weights[j] and shares[i] < caps[i]:
                assert shares[i] >= shares[j] - 1  # more weight never gets fewer, but for rounding


def test_apportion_by_largest_remainder() -> None:
    assert apportion([1, 1, 1], 10, [9, 9, 9]) == [4, 3, 3]  # ties: lower index
    assert apportion([5, 3, 2], 7, [9, 9, 9]) == [4, 2, 1]  # 3.5, 2.1, 1.4
    assert apportion([8, 1, 1], 10, [4, 9, 9]) == [4, 3, 3]  # the excess goes to the others
    assert apportion([0, 0], 3, [5, 5]) == [2, 1]
    with pytest.raises(ValueError, match="caps"):
        apportion([1, 1], 5, [2, 2])


def test_spread() -> None:
    assert spread(11, 4).tolist() == [3, 3, 3, 2]


# scores


def test_ties_go_to_the_lower_index() -> None:
    scores = torch.tensor([[1.0, 3.0, 1.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert rank(scores).tolist() == [[1, 3, 0, 2, 4], [0, 1, 2, 3, 4]]
    assert top(scores, 3).tolist() == [[0, 1, 3], [0, 1, 2]]
    assert top(scores, 0).shape == (2, 0)
    many = torch.zeros(1, 5000)  # sorts that are not stable mix long runs of equals
    assert top(many, 700).tolist() == [list(range(700))]
    assert top_mask(scores, torch.tensor([1, 4])).tolist() == [[False, True, False, False, False], [True] * 4 + [False]]


@quick
@given(seed=st.integers(0, 999), n=st.integers(1, 60), heads=st.integers(1, 3))
def test_sets_and_indices_are_inverse(seed: int, n: int, heads: int) -> None:
    mask = torch.rand(heads, n, generator=draw(seed)) < 0.4
    index, lengths = indices(mask)
    assert lengths.tolist() == mask.sum(1).tolist()
    for row, count, expected in zip(index, lengths, mask, strict=True):
        assert row[:count].tolist() == expected.nonzero()[:, 0].tolist()
    k = int(torch.randint(0, n + 1, (), generator=draw(seed)))
    chosen = top(torch.rand(heads, n, generator=draw(seed)), k)
    assert torch.equal(indices(mask_of(chosen, n))[0], chosen)


def test_pool_counts_its_padding() -> None:
    row = torch.tensor([[3.0, 0.0, 6.0, 9.0]])
    assert pool(row, 3).tolist() == [[1.0, 3.0, 5.0, 5.0]]
    assert pool(row, 3, "max").tolist() == [[3.0, 6.0, 9.0, 9.0]]
    assert pool(-row, 3, "max").tolist() == [[0.0, 0.0, 0.0, -6.0]]  # the padding never wins
    assert pool(row, 1) is row
    assert pool(row[:, :0], 5).shape == (1, 0)
    assert pool(torch.ones(1, 2), 7)[0, 0] == pytest.approx(2 / 7)  # wider than the row


def test_group_reduce_last_and_protect() -> None:
    x = torch.tensor([1.0, 3.0, 5.0, 5.0])[:, None]
    assert [group_reduce(x, 2, how)[:, 0].tolist() for how in ("mean", "sum", "max")] == [[2, 5], [4, 10], [3, 5]]
    assert last(4, 1).tolist() == [False, False, False, True] and not last(4, 0).any()
    assert protect(torch.zeros(1, 3), last(3, 1)).tolist() == [[0, 0, float("inf")]]


def test_take_gathers_by_head() -> None:
    x = torch.arange(12.0).view(2, 3, 2)
    assert take(x, torch.tensor([[0, 2], [1, 1]])).tolist() == [[[0, 1], [4, 5]], [[8, 9], [8, 9]]]
    assert take(x[..., 0], torch.tensor([[2], [0]])).tolist() == [[4], [6]]
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(take(strided, torch.tensor([[0, 2], [1, 1]])), take(x, torch.tensor([[0, 2], [1, 1]])))


# routing


def test_bucket_leaders_and_fallbacks() -> None:
    attention = torch.tensor([[0.1, 0.5, 0.5, 0.0, 0.2, 0.9, 0.3]])
    candidates = torch.tensor([[True, True, True, False, False, False, True]])
    target, found = bucket_leaders(attention, candidates, 3)
    assert target[found].tolist() == [1, 1, 1, 6] and found.tolist() == [[True] * 3 + [False] * 3 + [True]]
    assert nearest_candidate(candidates).tolist() == [[0, 1, 2, 2, 2, 6, 6]]  # entry 4 is as far from 2 as from 6
    assert strongest_candidate(attention, candidates).tolist() == [[1] * 7]
    assert own_or(target, found).tolist() == [[1, 1, 1, 3, 4, 5, 6]]


@quick
@given(seed=st.integers(0, 999), n=st.integers(1, 40))
def test_nearest_candidate(seed: int, n: int) -> None:
    mask = torch.rand(2, n, generator=draw(seed)) < 0.3
    mask[:, seed % n] = True
    for row, found in zip(mask, nearest_candidate(mask), strict=True):
        able = row.nonzero()[:, 0].tolist()
        assert found.tolist() == [min(able, key=lambda i: (abs(i - j), i)) for j in range(n)]


def test_nearest_kept_is_the_most_similar_key() -> None:
    keys = torch.tensor([[[1.0, 0.0], [2.0, 2.0], [0.0, 3.0], [0.0, 0.0], [-1.0, 0.1]]])
    target, similarity = nearest_kept(keys, torch.tensor([[0, 2]]), block=2)
    assert target.tolist() == [[0, 0, 2, 0, 2]]  # ties and zero keys: the lower index
    torch.testing.assert_close(similarity[0, :4], torch.tensor([1.0, 0.5**0.5, 1.0, 0.0]))


# gate


def test_cosine_of_extreme_vectors() -> None:
    x = torch.tensor([[1e-30, 0.0], [1e30, 1e30], [0.0, 0.0], [3.0, 4.0], [1e-38, 1e38]])
    y = torch.tensor([[1e-30, 1e-30], [1e30, 0.0], [1.0, 1.0], [4.0, 3.0], [1e38, 1e-38]])
    torch.testing.assert_close(cosine(x, y), torch.tensor([0.5**0.5, 0.5**0.5, 0.0, 0.96, 0.0]))
    assert cosine(x[3], y[3]) == pytest.approx(0.96) and cosine(x[2], y[2]) == 0
    assert cosine(x.bfloat16(), x.bfloat16()).tolist() == pytest.approx([1, 1, 0, 1, 1])


def test_gates() -> None:
    values = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [-1.0, 0.5], [0.0, 0.0]]])
    target = torch.zeros(1, 4, dtype=torch.long)
    torch.testing.assert_close(gate_weight(values, target, "cosine"), torch.tensor([[1, 0.5**0.5, 0, 0]]))
    assert gate_weight(values, target, 0.7).tolist() == [[1, 1, 0, 0]]
    assert gate_weight(values, target, 0.71).tolist() == [[1, 0, 0, 0]]
    for gate in ("none", None):
        assert gate_weight(values, target, gate).tolist() == [[1, 1, 1, 1]]
        assert gate_between(values, values, gate).tolist() == [[1, 1, 1, 1]]


# merge and compensation


@quick
@given(
    seed=st.integers(0, 999),
    n=st.integers(2, 50),
    heads=st.integers(1, 3),
    gate=st.sampled_from(["cosine", "none", 0.1]),
)
def test_absorb_is_gate_and_merge(seed: int, n: int, heads: int, gate: str | float) -> None:
    generator = draw(seed)
    values, attention = torch.randn(heads, n, 6, generator=generator), torch.rand(heads, n, generator=generator)
    attention[:, ::7] = 0  # entries that no query sees
    m = 1 + seed % (n - 1)
    index = torch.stack([torch.randperm(n, generator=generator)[:m].sort().values for _ in range(heads)])
    kept = mask_of(index, n)
    routed = ~kept & (torch.rand(heads, n, generator=generator) < 0.7)
    target = own_or(take(index, torch.randint(0, m, (heads, n), generator=generator)), routed)
    merged, weight = absorb(values, attention, index, target, routed, gate, block=5)
    expected = gate_weight(values, target, gate) * routed
    torch.testing.assert_close(weight, expected)
    whole = take(weighted_merge(values, attention, target, expected * attention), index)
    torch.testing.assert_close(merged, whole, rtol=1e-4, atol=1e-5)
    received = torch.zeros_like(attention).scatter_add(1, target, expected * attention)
    untouched = take(received, index) == 0
    assert torch.equal(merged[untouched], take(values, index)[untouched])
    strided = values.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(absorb(strided, attention, index, target, routed, gate)[0], merged)


def test_nothing_routed() -> None:
    values, attention, index = torch.randn(2, 5, 3), torch.rand(2, 5), torch.tensor([[0, 4], [1, 4]])
    target, routed = torch.arange(5).expand(2, -1), torch.zeros(2, 5, dtype=torch.bool)
    merged, weight = absorb(values, attention, index, target, routed, "cosine")
    assert torch.equal(merged, take(values, index)) and not weight.any()


def test_sum_by_target() -> None:
    x = torch.tensor([[[1.0], [2.0], [4.0], [8.0]]])
    target = torch.tensor([[0, 3, 3, 3]])
    assert sum_by_target(x, torch.tensor([[1.0, 0.5, 1.0, 2.0]]), target, torch.tensor([[3]])).tolist() == [[[21.0]]]
    both = sum_by_target(x, torch.ones(1, 4), target, torch.tensor([[0, 2, 3]]))
    assert both[0, :, 0].tolist() == [1, 0, 14]


def test_weighted_merge_by_hand_and_bit_for_bit() -> None:
    x = torch.tensor([[[1.0], [3.0], [0.1], [7.0]]], dtype=torch.float32)
    own, target = torch.tensor([[1.0, 1.0, 0.3, 0.0]]), torch.tensor([[1, 1, 2, 3]])
    merged = weighted_merge(x, own, target, torch.tensor([[3.0, 0, 0, 0]]))
    assert merged[0, 1, 0] == 1.5
    for untouched in (0, 2, 3):  # 0.3 * 0.1 / 0.3 is not 0.1 in float32, and entry 3 has no weight at all
        assert torch.equal(merged[0, untouched], x[0, untouched])
    with_mass = weighted_merge(x, own, target, torch.tensor([[3.0, 0, 0, 0]]), mass=torch.tensor([[1.0, 0, 0, 0]]))
    assert with_mass[0, 1, 0] == 3.0
    other = weighted_merge(x, own, target, torch.tensor([[3.0, 0, 0, 0]]), sources=x * 2)
    assert other[0, 1, 0] == 2.25
    from_nothing = weighted_merge(x, own, torch.tensor([[3, 1, 2, 3]]), torch.tensor([[3.0, 0, 0, 0]]))
    assert from_nothing[0, 3, 0] == 1.0  # an entry that nobody attends to becomes the mean of what arrives


def test_ratios_and_votes() -> None:
    attention, target = torch.tensor([[0.5, 0.25, 0.0, 1e-12]]), torch.tensor([[1, 1, 2, 2]])
    weight = torch.tensor([[1.0, 0.0, 0.0, 0.5]])
    ratio = attention_ratio(attention, target, weight)
    torch.testing.assert_close(ratio, torch.tensor([[1.0, 3.0, 1 + 5e-5, 1.0]]))
    assert ratio[0, 0] == 1 and ratio[0, 3] == 1  # exactly, where nothing arrived
    assert attention_ratio(attention, target, weight, floor=1.0)[0, 1] == 1.5
    assert votes(target, weight).tolist() == [[1, 2, 1.5, 1]]
    assert compensation("none", 0.5, attention, target, weight).tolist() == [[0, 0, 0, 0]]
    torch.testing.assert_close(compensation("attention", 0.5, attention, target, weight), 0.5 * ratio.log())
    torch.testing.assert_close(compensation("votes", 1, attention, target, weight), votes(target, weight).log())
