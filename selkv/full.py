"""The full cache as a method: everything is kept, through the same path as every other method."""

from dataclasses import dataclass

from selkv.method import Method
from selkv.state import Kept, LayerState, Needs, keep_all


@dataclass(frozen=True)
class Full(Method):
    """Keep every entry; the reference that deltas are measured against."""

    def needs(self, n: int, budget: int) -> Needs:
        """Nothing is recorded."""
        return Needs(window=0)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """The layer as it is."""
        return keep_all(layer)
