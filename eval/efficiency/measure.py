"""Clocks and peaks: nothing is timed without waiting for the device on both sides, no peak is read without a reset."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

T = TypeVar("T")

PROCESS = Path("/proc/self")
FORGET_PEAK = "5"  # Linux, proc(5): resets the peak of the resident set


class Spread(NamedTuple):
    """Median of the repeats, with the fastest and the slowest, in seconds."""

    median: float
    low: float
    high: float


def spread(times: Sequence[float]) -> Spread:
    """Median and range of at least one time."""
    return Spread(statistics.median(times), min(times), max(times))


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """Seconds that the work takes, the device idle before and after, and what it returned."""
    synchronise(device)
    begin = time.perf_counter()
    result = work()
    synchronise(device)
    return time.perf_counter() - begin, result


class Peak:
    """Highest memory of one phase; `bytes` is None where the system does not tell.

    On a GPU what tensors take; on a CPU the process's resident set, which also counts what its allocator holds back.
    """

    bytes: int | None = None


@contextmanager
def peak(device: torch.device) -> Iterator[Peak]:
    """Measure the peak of what happens inside, reset in front."""
    seen = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield seen
        synchronise(device)
        seen.bytes = torch.cuda.max_memory_allocated(device)
        return
    resettable = _forget_peak()
    yield seen
    seen.bytes = _resident_peak() if resettable else None


def _forget_peak() -> bool:
    try:
        (PROCESS / "clear_refs").write_text(FORGET_PEAK)
    except OSError:  # not Linux, or not allowed
        return False
    return True


def _resident_peak() -> int:
    lines = (PROCESS / "status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
