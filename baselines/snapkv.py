"""SnapKV: keep what the last prompt queries attend to, smoothed by pooling, and those queries' own window."""

from dataclasses import dataclass

from selkv.observation import ObservationMethod, with_recent
from selkv.scores import keep_best
from selkv.state import Kept, LayerState, keep_all


@dataclass(frozen=True)
class SnapKV(ObservationMethod):
    """SnapKV (Li et al. 2024, arXiv 2404.14469; FasterDecoding/SnapKV e216ddc).

    The authors' code keeps one set per query head, which grows the cache by the group size; here the group's scores are
    averaged and one set is kept per KV head (their issue 22). Their LongBench configurations pool by ``max`` with
    ``kernel=7``. Attributes: see `ObservationMethod`.
    """

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Best scored entries of each head and the protected last ones."""
        if budget >= layer.kv_heads * layer.n:
            return keep_all(layer)
        recent = self.recent(layer.n, budget // layer.kv_heads)
        return keep_best(layer, with_recent(self.scores(layer, recent), recent), budget)
