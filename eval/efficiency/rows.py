"""One line of the result: an arm at a prompt length, with what follows from its times and bytes."""

from dataclasses import dataclass
from typing import NamedTuple

from eval.arms import Arm
from eval.efficiency.measure import Spread, spread


@dataclass(frozen=True)
class Row:
    """One arm at one prompt length: seconds (median, low, high), bytes (None where unknown), shares of the roofline.

    `ttft` is prefill and compression; `total` adds the decode steps; `tokens_per_s` and `speedup` (over the full cache)
    are those of decoding. `decode_peak` is without the prefill's cache, which is held only for the other arms.
    """

    n: int
    method: str
    ratio: str
    prefill: Spread
    compress: Spread
    step: Spread
    ttft: float
    total: float
    tokens_per_s: float
    speedup: float
    compress_share: float
    kv_bytes: int
    cache_bytes: int
    prefill_peak: int | None
    compress_peak: int | None
    decode_peak: int | None
    prefill_roofline: float
    decode_roofline: float
    kernel: str
    load: float


class Seen:
    """What the repeats of one phase showed: seconds, and peaks in bytes."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.peaks: list[int] = []

    def peak(self, held: int = 0) -> int | None:
        """Highest peak of the repeats without what is held for other reasons; None where no peak is known."""
        return max(self.peaks) - held if self.peaks else None


class Cache(NamedTuple):
    """A compressed cache's exact K/V bytes, the bytes of its buffers, and the attention kernel of its decoding."""

    kv_bytes: int
    allocated: int
    kernel: str


class Prompt(NamedTuple):
    """What all arms share: tokens, the prefill, its least seconds and bytes held, tokens decoded, the load."""

    n: int
    filled: Seen
    least: float
    held: int
    new_tokens: int
    load: float


def row_of(
    arm: Arm, prompt: Prompt, compressed: Seen, decoded: Seen, cache: Cache, full: Seen, least_step: float
) -> Row:
    """Put an arm's line together; `full` is the decoding of the full cache."""
    steps = prompt.new_tokens - 1
    first, small, whole = spread(prompt.filled.times), spread(compressed.times), spread(decoded.times)
    step = Spread(*(seconds / steps for seconds in whole))
    ttft = first.median + small.median
    return Row(
        n=prompt.n,
        method=arm.label,
        ratio=arm.ratio_text,
        prefill=first,
        compress=small,
        step=step,
        ttft=ttft,
        total=ttft + whole.median,
        tokens_per_s=1 / step.median,
        speedup=spread(full.times).median / whole.median,
        compress_share=small.median / (ttft + whole.median),
        kv_bytes=cache.kv_bytes,
        cache_bytes=cache.allocated,
        prefill_peak=prompt.filled.peak(),
        compress_peak=compressed.peak(),
        decode_peak=decoded.peak(prompt.held),
        prefill_roofline=prompt.least / first.median,
        decode_roofline=least_step / step.median,
        kernel=cache.kernel,
        load=prompt.load,
    )
