"""EvolKV: SnapKV's selection with layer budgets that an evolutionary search found on training samples."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from pathlib import Path

from selkv.errors import UserError
from selkv.method import PrefillView
from selkv.observation import ObservationMethod

SEARCH = "selkv search model=... ratio=..."


@dataclass(frozen=True)
class EvolKV(ObservationMethod):
    """EvolKV (Yu and Chai 2025, arXiv 2509.08315; no official code found).

    Token choice is SnapKV's; a layer's part before the window is its weight times the uniform one, apportioned to the
    exact total. All weights 1 is SnapKV. What the search does is told by the script that writes the file.

    Attributes
    ----------
    budget_file : str or None
        JSON file of the search, with ``model``, ``ratio``, ``seed``, ``data``, ``sample_ids``, ``group`` and
        ``weights`` (one number a layer).
    weights : sequence of float or None
        The weights themselves, instead of a file; a file's are read into this field, so that records hold them.
    window, kernel, pooling, reduce, pool_first
        See `ObservationMethod`.
    """

    label = "search details unconfirmed"

    budget_file: str | None = None
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.budget_file is None) == (self.weights is None):
            raise ValueError(
                f"evolkv needs either budget_file (now {self.budget_file!r}) or weights (now {self.weights!r}); "
                f"make a budget file with: {SEARCH}"
            )
        given = read_weights(self.budget_file) if self.budget_file is not None else self.weights
        weights = tuple(float(w) for w in given or ())
        if not weights or not all(isfinite(w) and w >= 0 for w in weights):  # those of a file, too
            raise ValueError(f"weights={weights!r} of EvolKV; must be numbers of at least 0, one per layer")
        object.__setattr__(self, "weights", weights)

    @property
    def trained_on(self) -> frozenset[str]:
        """Training samples that the budget file names."""
        if self.budget_file is None:
            return frozenset()
        return frozenset(json.loads(Path(self.budget_file).read_text(encoding="utf-8")).get("sample_ids", ()))

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Uniform parts before the window, times the weights."""
        weights = self.weights or ()
        shares = []
        for layer in prefill.layers:  # without sliding-window layers where those are kept whole
            if len(weights) != layer.layers:
                raise UserError(
                    f"evolkv has weights for {len(weights)} layers and the model has {layer.layers}; "
                    f"make a budget file for this model with: {SEARCH}"
                )
            shares.append(weights[layer.layer] * self.prefix(layer, ratio).budget)
        return self.allot(prefill, ratio, shares)


def read_weights(path: str) -> list[float]:
    """Weights of a budget file, one a layer.

    Raises
    ------
    ValueError
        When the file is missing or is not a budget file; says how to make one.
    """
    try:
        return [float(w) for w in json.loads(Path(path).read_text())["weights"]]
    except OSError as error:
        reason = error.strerror
    except (ValueError, KeyError, TypeError) as error:
        reason = f"not a budget file ({type(error).__name__}: {error})"
    raise ValueError(f"budget_file={path!r} of evolkv: {reason}; make one with: {SEARCH}")
