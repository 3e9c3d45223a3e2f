"""The full cache: the row that every other method is compared with."""

from dataclasses import dataclass
from typing import ClassVar

from selkv.method import Method
from selkv.state import Kept, LayerState, Needs, keep_all


@dataclass(frozen=True)
class Full(Method):
    """Keep everything, whatever the budget."""

    version: ClassVar[int] = 1

    def needs(self, n: int, budget: int) -> Needs:
        """Nothing."""
        return Needs(window=0)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """All entries, unchanged."""
        return keep_all(layer)
