"""The rows of a run's table: every method with its hyperparameters, at every ratio."""

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from eval.choices import choices, file_of
from selkv.budget import parse_ratio
from selkv.errors import UserError, unknown
from selkv.named import build, read_yaml

if TYPE_CHECKING:
    from selkv.method import Method


@dataclass(frozen=True)
class Arm:
    """One row of the table: a method with its hyperparameters at one ratio.

    Attributes
    ----------
    method : str
        Name of the method's YAML file.
    label : str
        Name of the row: the method, and what a grid sets (``selkv alpha=0.5``).
    target : str
        Import path of the method's class.
    params : dict
        Hyperparameters as configured.
    ratio : Fraction
        Fraction of the prompt's entries that is kept, in (0, 1]; 1 for the full cache.
    """

    method: str
    label: str
    target: str
    params: dict[str, Any]
    ratio: Fraction

    @property
    def ratio_text(self) -> str:
        """The ratio as a user writes it: ``0.25``, or ``1/3`` where no decimal is exact."""
        decimal = f"{float(self.ratio):.15g}"
        return decimal if Fraction(decimal) == self.ratio else str(self.ratio)


def arms_of(methods: dict[str, Any], grid: dict[str, Any], ratios: list[Fraction]) -> tuple[Arm, ...]:
    """Rows of a run: methods (each grid cell a row of its own) times ratios, in the order given.

    The full cache comes first where it was not asked for, since the delta of every row needs it.

    Parameters
    ----------
    methods : dict
        Hyperparameters and ``_target_`` by method.
    grid : dict
        Lists of values by method and hyperparameter.
    ratios : list of Fraction
    """
    _refuse_plain("methods", methods, "0.5")
    _refuse_plain("grid", grid, "[0,0.5,1]")
    if not methods:
        raise UserError(f"no method is chosen; add method=[...] with names from: {', '.join(choices('method'))}")
    for name in grid:
        if name not in methods:
            raise unknown("method in grid", name, methods, f"Add it to the run: method=[...,{name}].")
    if "full" not in methods:
        methods = {"full": read_yaml(file_of("method", "full")), **methods}
    return tuple(
        Arm(name, label, target, params, ratio)
        for name, options in methods.items()
        for label, target, params in _rows(name, options, grid.get(name) or {})
        for ratio in ([Fraction(1)] if name == "full" else ratios)
    )


def _refuse_plain(option: str, tree: Any, example: str) -> None:
    """Raise UserError unless it is a mapping of methods to mappings of hyperparameters."""
    below = {f"{option}.{name}": tree[name] for name in tree} if isinstance(tree, dict) else {}
    for key, value in {option: tree, **below}.items():
        if not isinstance(value, dict):
            raise UserError(f"{key}={written(value)} names no hyperparameter, e.g. {option}.selkv.alpha={example}")


def _rows(name: str, options: dict[str, Any], grid: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Label, target and hyperparameters of each row that a grid makes of a method; one row without a grid."""
    params = {key: value for key, value in options.items() if key != "_target_"}
    if "_target_" not in options:
        raise UserError(f"method {name} has no _target_; name its class in {file_of('method', name)}")
    for key in grid:
        if key not in params:
            raise unknown(f"hyperparameter of method {name}", key, params)
    values = [_values(f"grid.{name}.{key}", value) for key, value in grid.items()]
    cells = [dict(zip(grid, combination, strict=True)) for combination in itertools.product(*values)]
    labels = [" ".join([name, *(f"{key}={written(value)}" for key, value in cell.items())]) for cell in cells]
    return [(label, options["_target_"], params | cell) for label, cell in zip(labels, cells, strict=True)]


def _values(key: str, given: Any) -> list[Any]:
    """Values of one hyperparameter of a grid: one or a list, repetitions dropped."""
    values = given if isinstance(given, list) else [given]
    if not values:
        raise UserError(f"{key}=[] is empty; give one or more values, e.g. {key}=[a,b], or drop it")
    if isinstance(given, dict):
        raise UserError(f"{key} is a mapping; a grid takes a list of whole values, e.g. '{key}=[{{...}},{{...}}]'")
    return [value for i, value in enumerate(values) if value not in values[:i]]


def ratios_of(value: Any) -> list[Fraction]:
    """The ratios of ``ratio=``: one value or a list, repetitions dropped."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UserError("ratio=[] is empty; give one or more numbers in (0, 1], e.g. ratio=[0.1,0.25]")
    return list(dict.fromkeys(map(parse_ratio, values)))


def instantiate(arm: Arm) -> "Method":
    """Build the arm's method (imports torch).

    Raises
    ------
    UserError
        For hyperparameters that the method does not have, or values that it refuses.
    """
    return build(arm.method, arm.target, arm.params)


def written(value: object) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
