"""What is a difference and what is noise: paired, stratified comparisons of methods that saw the same samples.

Every statistic is the mean over tasks of the mean difference within a task, so a task counts the same whatever its
number of samples. Resampling is shared by all methods of a table: one matrix product a task.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.floating[Any]]
Strata = Sequence[Array]  # one (samples, methods) array of paired differences a task

DRAWS = 10_000
LEVEL = 0.95
POWER = 0.8
TIE = 1e-9  # points: differences below it are rounding of the same score


@dataclass(frozen=True)
class Comparison:
    """A method against a reference on the samples that both have.

    Attributes
    ----------
    delta : float
        Mean over tasks of the mean difference, in points; NaN where a task has no common sample.
    low, high : float
        Bootstrap confidence interval of `delta`; NaN where a task has one sample only.
    p : float
        Two-sided p value of the paired permutation test.
    adjusted : float
        `p` after Holm's correction over the methods that were compared together.
    wins, ties, losses : int
        Samples on which the method is better, equal, worse.
    detectable : float
        Smallest true difference that this many samples would detect (two-sided 5 %, power 80 %); NaN where every
        difference is the same.
    samples : int
        Pairs.
    """

    delta: float
    low: float
    high: float
    p: float
    adjusted: float
    wins: int
    ties: int
    losses: int
    detectable: float
    samples: int


def compare(scores: Strata, reference: Strata, draws: int = DRAWS, seed: int = 0) -> list[Comparison]:
    """Compare each method with a reference.

    Parameters
    ----------
    scores : sequence of (samples, methods) arrays
        Points by task; NaN where a cell is missing.
    reference : sequence of (samples,) arrays
        The same samples under the reference.
    draws : int
        Of the bootstrap and of the permutation test.
    seed : int
        Of both.

    Returns
    -------
    list of Comparison
        One a method, in order.
    """
    differences = [task - base[:, None] for task, base in zip(scores, reference, strict=True)]
    columns = differences[0].shape[1] if differences else 0
    raw: dict[int, Comparison] = {}
    for chosen, pairs in _complete(differences):
        for index, comparison in zip(chosen, _compare(pairs, draws, seed), strict=True):
            raw[index] = comparison
    adjusted = holm([raw[index].p for index in range(columns)])
    return [replace(raw[index], adjusted=float(adjusted[index])) for index in range(columns)]


def _complete(differences: Strata) -> Iterator[tuple[list[int], list[Array]]]:
    """Methods grouped by the samples that they have, so that each group shares its draws and holds no NaN."""
    groups: dict[bytes, list[int]] = {}
    present = [~np.isnan(task) for task in differences]
    for method in range(differences[0].shape[1] if differences else 0):
        groups.setdefault(b"".join(task[:, method].tobytes() for task in present), []).append(method)
    for methods in groups.values():
        rows = [task[:, methods[0]] for task in present]
        yield methods, [task[keep][:, methods] for task, keep in zip(differences, rows, strict=True)]


def _compare(differences: Strata, draws: int, seed: int) -> list[Comparison]:
    pooled = np.concatenate(differences)
    known = all(len(task) for task in differences)
    nothing = np.full(pooled.shape[1], np.nan)
    delta = stratified_mean(differences) if known else nothing
    low, high = bootstrap(differences, draws, seed) if known else (nothing, nothing)
    p = permutation_test(differences, draws, seed) if known else nothing
    smallest = detectable(differences) if known else nothing
    wins, ties, losses = (pooled > TIE).sum(0), (np.abs(pooled) <= TIE).sum(0), (pooled < -TIE).sum(0)
    return [
        Comparison(
            delta=float(delta[i]),
            low=float(low[i]),
            high=float(high[i]),
            p=float(p[i]),
            adjusted=np.nan,
            wins=int(wins[i]),
            ties=int(ties[i]),
            losses=int(losses[i]),
            detectable=float(smallest[i]),
            samples=len(pooled),
        )
        for i in range(pooled.shape[1])
    ]


def stratified_mean(differences: Strata) -> Array:
    """Mean over tasks of the mean within a task; (methods,)."""
    return np.mean([task.mean(0) for task in differences], axis=0)


def standard_error(differences: Strata) -> tuple[Array, Array]:
    """Standard error of the stratified mean, and its degrees of freedom (Welch and Satterthwaite); (methods,) each.

    Both are NaN where a task has one sample.
    """
    if min(map(len, differences)) < 2:
        return (np.full(differences[0].shape[1], np.nan),) * 2
    variances = np.array([task.var(0, ddof=1) / len(task) for task in differences])  # (tasks, methods)
    spare = np.array([len(task) - 1 for task in differences])[:, None]
    total = variances.sum(0)
    with np.errstate(invalid="ignore"):
        freedom = total**2 / (variances**2 / spare).sum(0)
    error: Array = np.sqrt(total) / len(differences)
    return error, np.where(total > 0, freedom, np.inf)


def bootstrap(differences: Strata, draws: int = DRAWS, seed: int = 0, level: float = LEVEL) -> tuple[Array, Array]:
    """Confidence interval of the stratified mean by the bootstrap, resampled within each task.

    A task of n samples gives n - 1 draws with replacement: drawing n makes the variance too small by (n - 1) / n,
    which is a third at 3 samples a task (McCarthy and Snowden 1985; Rao and Wu 1988). The percentiles are widened from
    the normal to the t distribution (Hesterberg 2015, expanded percentile interval), without effect on large runs.

    Returns
    -------
    (low, high)
        (methods,) each; NaN where a task has one sample.
    """
    error, freedom = standard_error(differences)
    if np.isnan(error).any():
        return error, error
    random = np.random.default_rng([seed, 0])
    means = np.zeros((draws, differences[0].shape[1]))
    for task in differences:
        means += _counts(random, draws, len(task)) @ task / ((len(task) - 1) * len(differences))
    tails = stats.norm.cdf(stats.t.ppf((1 - level) / 2, freedom))
    ends = [np.quantile(column, [tail, 1 - tail]) for column, tail in zip(means.T, tails, strict=True)]
    low, high = np.array(ends).T
    return low, high


def _counts(random: np.random.Generator, draws: int, n: int) -> Array:
    """How often each of n samples is drawn in n - 1 draws with replacement; (draws, n)."""
    drawn = random.integers(0, n, (draws, n - 1)) + n * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * n).reshape(draws, n).astype(np.float64)


def permutation_test(differences: Strata, draws: int = DRAWS, seed: int = 0) -> Array:
    """Two-sided p values of the paired permutation test of the stratified mean; (methods,).

    Under the hypothesis of no effect the two scores of a sample can be exchanged, so the sign of each difference is
    drawn anew. Exact (all signs) where there are at most `draws` of them, else with the observed signs counted in.
    """
    samples = sum(len(task) for task in differences)
    exact = 2**samples <= draws
    signs = _all_signs(samples) if exact else _random_signs(np.random.default_rng([seed, 1]), draws)
    means = sum(signs(task) @ task / (len(task) * len(differences)) for task in differences)
    extreme = (np.abs(means) >= np.abs(stratified_mean(differences)) - TIE).sum(0)
    return extreme / 2**samples if exact else (extreme + 1) / (draws + 1)


def _random_signs(random: np.random.Generator, draws: int) -> Callable[[Array], Array]:
    return lambda task: random.integers(0, 2, (draws, len(task))) * 2.0 - 1


def _all_signs(samples: int) -> Callable[[Array], Array]:
    """All patterns of signs over the samples of all tasks, handed out task by task."""
    bits = iter(range(samples))
    patterns = np.arange(2**samples)
    return lambda task: np.stack([(patterns >> next(bits) & 1) * 2.0 - 1 for _ in task], axis=1)


def holm(p: Sequence[float]) -> Array:
    """P values corrected for their number by Holm's step-down rule; NaN stays and is not counted."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")  # NaN last
    known = int((~np.isnan(values)).sum())
    factors = np.maximum(known - np.arange(len(values)), 1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.fmax.accumulate(values[order] * factors), 1)
    return np.where(np.isnan(values), np.nan, adjusted)


def detectable(differences: Strata, level: float = LEVEL, power: float = POWER) -> Array:
    """Smallest true difference found with probability `power` at this number of samples; (methods,)."""
    error, freedom = standard_error(differences)
    smallest: Array = (stats.t.ppf((1 + level) / 2, freedom) + stats.t.ppf(power, freedom)) * error
    return np.where(error > 0, smallest, np.nan)
