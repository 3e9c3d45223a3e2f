"""PyramidKV: SnapKV's selection with budgets that fall linearly from the first layer to the last."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from selkv.budget import kept_per_head
from selkv.method import PrefillView
from selkv.observation import ObservationMethod


@dataclass(frozen=True)
class PyramidKV(ObservationMethod):
    """PyramidKV (Cai et al. 2024, arXiv 2406.02069; Zefan-Cai/KVCache-Factory c97f9d7).

    The authors' integer steps overshoot the budget by up to 1.3 %, and their code falls back to uniform budgets where
    the ratio is above about one half; here the same pyramid is apportioned to the exact total and never given up.

    Attributes
    ----------
    beta : float
        The last layer's part before the window is 1/beta of the mean.
    rule : str
        ``exact``, or the budgets of ``kvcf`` (the authors) or ``kvpress``, whose totals are approximate.
    window, kernel, pooling, reduce, pool_first
        See `ObservationMethod`; the authors' runner uses window 8 and max pooling of 7.
    """

    beta: Annotated[float, Field(ge=1)] = 20
    rule: Literal["exact", "kvcf", "kvpress"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "exact", self.rule == "exact")  # hides the class's own

    def budgets(self, prefill: PrefillView, ratio: Fraction) -> list[int]:
        """Linear in the layer."""
        layers, depth = prefill.layers, len(prefill.layers)
        if self.rule == "exact":
            weights = []
            for i, layer in enumerate(layers):
                _, budget, size = self.prefix(layer, ratio)
                high, low = self._ends(budget, size)
                weights.append(high - i / max(1, depth - 1) * (high - low) if depth > 1 else budget)
            return self.allot(prefill, ratio, weights)
        rule = self._kvcf if self.rule == "kvcf" else self._kvpress
        return [layer.kv_heads * rule(layer.n, ratio, i, depth) for i, layer in enumerate(layers)]

    def _ends(self, budget: float, size: int) -> tuple[float, float]:
        """Largest and smallest part, around `budget`; the largest is clamped to what there is."""
        high = min(2 * budget - budget / self.beta, size)
        return high, 2 * budget - high

    def _kvcf(self, n: int, ratio: Fraction, layer: int, depth: int) -> int:
        """KVCache-Factory's whole numbers: floored ends and steps, uniform below twice the budget."""
        kept = kept_per_head(n, ratio)
        budget = kept - self.window
        if n < 2 * budget:
            return kept
        low = int(budget // self.beta)
        high = 2 * budget - low
        if high >= n - self.window:
            high, low = n - self.window, 2 * budget - (n - self.window)
        return self.window + high - layer * ((high - low) // max(1, depth - 1))

    def _kvpress(self, n: int, ratio: Fraction, layer: int, depth: int) -> int:
        """Rounding of kvpress: budgets that count the window, uniform where the smallest is below it."""
        budget = float(n * ratio)
        high, low = budget * 2 - budget / self.beta, budget / self.beta
        if high >= n - self.window:
            high, low = n - self.window, budget * 2 - (n - self.window)
        if not n >= high >= low >= self.window:
            return round(budget)
        return round(high - layer * (high - low) / max(1, depth - 1))
