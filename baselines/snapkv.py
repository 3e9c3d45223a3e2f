"""SnapKV: keep what the last prompt queries attend to, smoothed by pooling, and those queries' own window."""

from dataclasses import dataclass

from selkv.observation import ObservationMethod


@dataclass(frozen=True)
class SnapKV(ObservationMethod):
    """SnapKV (Li et al. 2024, arXiv 2404.14469; FasterDecoding/SnapKV e216ddc).

    The authors' code keeps one set per query head, which grows the cache by the group size; here the group's scores are
    averaged and one set is kept per KV head (their issue 22). Their LongBench configurations pool by ``max`` with
    ``kernel=7``. Attributes: see `ObservationMethod`, whose selection is SnapKV's.
    """
