"""Operators that merging methods are built from, against loops."""

import pytest
import torch

from selkv.merge import arrival, cosine, gate_between, gate_weight, in_turns, nearest_kept, weighted_merge
from selkv.routing import right_neighbour
from selkv.scores import mask_of


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("reach", [None, 0, 3, 50])
@pytest.mark.parametrize("block", [7, 1024])
def test_nearest_kept(reach, block):
    keys = draw(2, 40, 8)
    kept = torch.stack([torch.arange(0, 40, 5), torch.arange(3, 27, 3)])
    lengths = torch.tensor([8, 5])
    target, similarity = nearest_kept(keys, kept, reach=reach, lengths=lengths, block=block)
    for h in range(2):
        for j in range(40):
            near = [i for i in kept[h, : lengths[h]].tolist() if reach is None or abs(i - j) <= reach]
            if j in kept[h, : lengths[h]]:
                assert (int(target[h, j]), float(similarity[h, j])) == (j, 1.0)
                continue
            scores = [float(cosine(keys[h, j], keys[h, i])) for i in near]
            if not near:
                assert similarity[h, j] == float("-inf")
                continue
            assert float(similarity[h, j]) == pytest.approx(max(scores), abs=1e-6)
            assert int(target[h, j]) == near[scores.index(max(scores))]


def test_nearest_kept_takes_the_lower_index_of_equals():
    keys = torch.ones(1, 6, 4)
    assert nearest_kept(keys, torch.tensor([[1, 3, 5]]))[0].tolist() == [[1, 1, 1, 3, 1, 5]]


def test_weighted_merge_counts_mass_without_weight():
    """A source of similarity 0 still counts in the denominator (LOOK-M weighted); untouched entries keep their bits."""
    x = draw(1, 3, 4)
    target, weight, mass = torch.tensor([[1, 1, 2]]), torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]])
    merged = weighted_merge(x, torch.ones(1, 3), target, weight, mass=mass)
    torch.testing.assert_close(merged[0, 1], x[0, 1] / 2)
    assert torch.equal(merged[0, ::2], x[0, ::2])


def test_arrival_and_turns():
    target = torch.tensor([[3, 3, 2, 3, 3], [0, 0, 0, 3, 3]])
    routed = torch.tensor([[True, True, False, False, True], [False, True, True, False, True]])
    turn = arrival(target, routed)
    assert turn.tolist() == [[1, 2, 0, 0, 3], [0, 1, 2, 0, 1]]
    pairs = [list(zip(i.tolist(), j.tolist(), strict=True)) for i, j in in_turns(target, turn)]
    assert pairs == [[(0, 3), (6, 5), (9, 8)], [(1, 3), (7, 5)], [(4, 3)]]
    assert in_turns(target, torch.zeros_like(turn)) == []


def test_right_neighbour():
    target, found = right_neighbour(torch.tensor([[False, True, False, False, True, False]]))
    assert target[0, :5].tolist() == [1, 1, 4, 4, 4] and found.tolist() == [[True] * 5 + [False]]


@pytest.mark.parametrize("gate", [None, "none", "cosine", 0.2, -1.0, 2.0])
def test_gate_between_is_the_gate_of_pairs(gate):
    values, target = draw(2, 9, 4), torch.arange(9).flip(0).expand(2, -1)
    pairs = values.gather(1, target[..., None].expand_as(values))
    torch.testing.assert_close(gate_weight(values, target, gate), gate_between(values, pairs, gate))
    assert mask_of(target, 9).all()
