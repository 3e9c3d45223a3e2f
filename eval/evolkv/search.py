"""CMA-ES over the weights of the layers, one group of consecutive layers after the other; knows no model and no data.

Follows EvolKV (Yu and Chai 2025, arXiv 2509.08315): every layer of a group has a weight of its own, the other groups
are frozen (searched ones at their best, the rest at 1), the best vector is kept over the whole run. A weight is a
layer's share of the budget over the uniform one. Budgets are apportioned to the exact total, so the paper's term for
the size of the cache would be constant and is left out. Not confirmed in the paper, chosen here: the number of
generations, the bounds, and that sigma is meant in units of the uniform budget.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log
from typing import Any, NamedTuple

from selkv.errors import UserError

Weights = tuple[float, ...]
Evaluate = Callable[[Sequence[Weights]], list[float]]

LOW, HIGH = 0.1, 4.0  # bounds of a weight


@dataclass(frozen=True)
class Search:
    """What a search does.

    Attributes
    ----------
    iterations : int
        Generations a group.
    population : int or None
        Candidates a generation; None is CMA-ES's own 4 + floor(3 ln n), 10 for a group of 8.
    group : int
        Layers of a group.
    sigma : float
        First step size, in units of the uniform budget.
    seed : int
    """

    iterations: int = 10
    population: int | None = None
    group: int = 8
    sigma: float = 0.3
    seed: int = 1

    def __post_init__(self) -> None:
        for name, least in (("iterations", 1), ("group", 2), ("seed", 0)):
            if not isinstance(value := getattr(self, name), int) or isinstance(value, bool) or value < least:
                raise UserError(f"search.{name}={value} is not a whole number of at least {least}")
        if self.population is not None and (type(self.population) is not int or self.population < 3):
            raise UserError(f"search.population={self.population} is not a whole number of at least 3, or null")
        if type(self.sigma) not in (int, float) or not 0 < self.sigma <= HIGH:
            raise UserError(f"search.sigma={self.sigma} is not a number in (0, {HIGH}]")

    def size(self, layers: int) -> int:
        """Candidates a generation for a group of so many layers."""
        return self.population or 4 + floor(3 * log(layers))


class Undecoded(Exception):
    """A training sample that could not be decoded: ends a search, whose best so far stands."""


class Found(NamedTuple):
    """State of a search after a generation: the best weights so far, their score, that of uniform budgets."""

    weights: Weights
    score: float
    uniform: float
    layers: range
    evaluations: int


def groups(layers: int, size: int) -> list[range]:
    """Groups of `size` consecutive layers from the bottom; one layer that remains joins the last group.

    CMA-ES needs two variables at least.
    """
    if layers < 2:
        raise UserError(f"a model of {layers} layer has no budgets to search; a budget is shared among layers")
    starts = [start for start in range(0, layers, size) if start == 0 or layers - start > 1]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], layers], strict=True)]


def search(evaluate: Evaluate, layers: int, options: Search) -> Iterator[Found]:
    """Search generation by generation.

    Parameters
    ----------
    evaluate : callable
        Scores of some weight vectors, the higher the better; all candidates of a generation come in one call.
    layers : int
        Layers of the model.
    options : Search

    Yields
    ------
    Found
        After the uniform budgets, and after every generation.
    """
    best: Weights = (1.0,) * layers
    (uniform,) = evaluate([best])
    found = Found(best, uniform, uniform, range(0), 1)
    yield found
    for members in groups(layers, options.group):
        strategy = _strategy(len(members), options)
        for _ in range(options.iterations):
            drawn = strategy.ask()
            candidates = [_replaced(found.weights, members, values) for values in drawn]
            scores = evaluate(candidates)
            strategy.tell(drawn, [-score for score in scores])
            top = max(range(len(scores)), key=scores.__getitem__)
            if scores[top] > found.score:  # ties stay with what was found first, uniform before all
                found = found._replace(weights=candidates[top], score=scores[top])
            found = found._replace(layers=members, evaluations=found.evaluations + len(scores))
            yield found


def _replaced(weights: Weights, members: range, values: Sequence[float]) -> Weights:
    return (*weights[: members.start], *map(float, values), *weights[members.stop :])


def library() -> Any:
    """The package cma; UserError where it is not installed."""
    try:
        import cma
    except ModuleNotFoundError as error:
        raise UserError("the search needs the package cma; install it: pip install cma") from error
    return cma


def _strategy(variables: int, options: Search) -> Any:
    settings = {"popsize": options.size(variables), "bounds": [LOW, HIGH], "verbose": -9}
    seed = {"seed": options.seed + 1}  # 0 would be the time
    return library().CMAEvolutionStrategy([1.0] * variables, options.sigma, settings | seed)
