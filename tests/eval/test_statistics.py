"""Statistics against hand-computed cases, against scipy, and against what they promise (coverage, rejection)."""

import numpy as np
import pytest
from scipy import stats

from eval import statistics


def strata(sizes, methods=1, seed=0, effect=0.0):
    """Differences in points: skewed, zero-inflated, on steps of a fifth of a sample, as F1 differences are."""
    random = np.random.default_rng(seed)
    tasks = []
    for size in sizes:
        same = random.random((size, methods)) < 0.4
        tasks.append(np.where(same, 0.0, random.integers(-5, 6, (size, methods)) * 4.0) + effect)
    return tasks


def test_delta_weighs_tasks_alike_whatever_their_size():
    [result] = statistics.compare([np.array([[1.0]] * 4), np.array([[4.0], [6.0]])], [np.zeros(4), np.zeros(2)])
    assert result.delta == pytest.approx((1 + 5) / 2)
    assert (result.wins, result.ties, result.losses, result.samples) == (6, 0, 0, 6)


def test_three_samples_by_hand():
    """Differences 1, 2, 3: of the 8 sign patterns only all-plus and all-minus reach |mean| 2."""
    [result] = statistics.compare([np.array([[1.0], [2.0], [3.0]])], [np.zeros(3)])
    assert result.p == result.adjusted == pytest.approx(2 / 8)
    error = 1 / np.sqrt(3)
    assert result.detectable == pytest.approx((stats.t.ppf(0.975, 2) + stats.t.ppf(0.8, 2)) * error)


def test_wins_ties_losses_ignore_rounding():
    scores, reference = np.array([[0.3 * 100], [50.0], [10.0], [80.0]]), np.array([30.000000000000004, 40, 20, 80])
    [result] = statistics.compare([scores], [reference])
    assert (result.wins, result.ties, result.losses) == (1, 2, 1)


def test_holm_by_hand():
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.5, np.nan, 0.02]) == pytest.approx([0.5, np.nan, 0.04], nan_ok=True)
    assert statistics.holm([0.9, 0.8]) == pytest.approx([1, 1])


@pytest.mark.parametrize("sizes", [(12,), (4, 5), (2, 3, 6)])
def test_small_permutation_tests_equal_scipys_exact_one(sizes):
    """scipy has no strata, but the stratified mean is a weighted sum (here in whole numbers: exact ties)."""
    for seed in range(5):
        tasks = strata(sizes, seed=seed)
        weighted = np.concatenate([task[:, 0] * (np.lcm.reduce(sizes) // len(task)) for task in tasks])
        expected = stats.permutation_test(
            (weighted, np.zeros_like(weighted)), lambda a, b: np.sum(a - b), permutation_type="samples"
        ).pvalue
        assert statistics.permutation_test(tasks)[0] == pytest.approx(expected, abs=1e-12)


def test_large_permutation_test_is_near_scipys():
    tasks = strata((30, 50), seed=3, effect=2.0)
    weighted = np.concatenate([task[:, 0] / len(task) / len(tasks) for task in tasks])
    expected = stats.permutation_test(
        (weighted, np.zeros_like(weighted)), lambda a, b, axis: np.sum(a - b, axis), permutation_type="samples",
        vectorized=True, rng=0,
    ).pvalue  # fmt: skip
    assert 0.02 < expected < 0.5
    assert statistics.permutation_test(tasks)[0] == pytest.approx(expected, abs=0.02)


def test_bootstrap_of_large_samples_is_near_scipys():
    tasks = strata((300, 400, 500), seed=1, effect=2.0)

    def mean(*resampled, axis):
        return np.mean([task.mean(axis) for task in resampled], axis=0)

    flat = tuple(task[:, 0] for task in tasks)
    expected = stats.bootstrap(flat, mean, method="percentile", n_resamples=9999, rng=0).confidence_interval
    low, high = statistics.bootstrap(tasks)
    assert low[0] == pytest.approx(expected.low, abs=0.03 * (expected.high - expected.low))
    assert high[0] == pytest.approx(expected.high, abs=0.03 * (expected.high - expected.low))


def test_one_task_has_students_degrees_of_freedom():
    tasks = strata((20,), seed=2)
    error, freedom = statistics.standard_error(tasks)
    assert error[0] == pytest.approx(stats.sem(tasks[0][:, 0]))
    assert freedom[0] == pytest.approx(19)


def test_missing_cells_leave_only_their_own_method():
    tasks, base = strata((5, 6), methods=3, seed=4), [np.zeros(5), np.zeros(6)]
    whole = statistics.compare(tasks, base)
    holed = [task.copy() for task in tasks]
    holed[0][1, 2] = np.nan
    result = statistics.compare(holed, base)
    assert result[0].low == whole[0].low and result[1].p == whole[1].p
    assert result[2].samples == 10
    assert result[2].delta == pytest.approx((np.delete(tasks[0][:, 2], 1).mean() + tasks[1][:, 2].mean()) / 2)


def test_a_task_without_pairs_gives_no_delta():
    result = statistics.compare([np.full((3, 1), np.nan), np.ones((3, 1))], [np.zeros(3), np.zeros(3)])[0]
    assert np.isnan([result.delta, result.low, result.p, result.adjusted]).all()
    assert result.wins == result.samples == 3


def test_one_sample_a_task_has_no_interval_but_a_test():
    result = statistics.compare([np.ones((1, 1))] * 3, [np.zeros(1)] * 3)[0]
    assert np.isnan([result.low, result.detectable]).all()
    assert result.p == pytest.approx(2 / 8)


def test_equal_methods_differ_in_nothing():
    result = statistics.compare([np.ones((4, 1))] * 4, [np.ones(4)] * 4)[0]
    assert (result.delta, result.low, result.high, result.p, result.ties) == (0, 0, 0, 1, 16)
    assert np.isnan(result.detectable)


def test_seed_decides():
    tasks, base = strata((20, 30), seed=5, effect=1), [np.zeros(20), np.zeros(30)]
    assert statistics.compare(tasks, base, seed=1) == statistics.compare(tasks, base, seed=1)
    assert statistics.compare(tasks, base, seed=1) != statistics.compare(tasks, base, seed=2)


@pytest.mark.parametrize("sizes", [(200,) * 2 + (150,), (20,) * 8, (5,) * 16, (3,) * 16, (6, 6)])
def test_intervals_cover_the_true_effect_in_95_of_100_simulations(sizes):
    """1,000 simulated runs as 1,000 methods: they share the resampling, and each gets its own interval."""
    effect = 1.5
    low, high = statistics.bootstrap(strata(sizes, methods=1000, seed=6, effect=effect))
    covered = np.mean((low <= effect) & (effect <= high))
    assert 0.93 <= covered <= 0.97, f"{covered:.3f} of the intervals cover"


@pytest.mark.parametrize("sizes", [(200,) * 2 + (150,), (20,) * 8, (3,) * 16])
def test_no_effect_is_rejected_in_5_of_100_simulations(sizes):
    rejected = np.mean(statistics.permutation_test(strata(sizes, methods=1000, seed=7)) < 0.05)
    assert 0.03 <= rejected <= 0.07, f"{rejected:.3f} rejected"


def test_the_detectable_difference_is_detected_in_80_of_100_simulations():
    sizes = (50,) * 4
    smallest = np.mean(statistics.detectable(strata(sizes, methods=200, seed=8)))
    found = np.mean(statistics.permutation_test(strata(sizes, methods=1000, seed=9, effect=smallest)) < 0.05)
    assert 0.75 <= found <= 0.85, f"{found:.3f} found"
