"""Memory of keys and values that one decode batch after another uses."""

import ctypes
import math
import sys

from torch import Tensor


def buffers(like: Tensor, shape: tuple[int, ...], memory: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Uninitialised keys and values of one layer.

    A CPU takes longer to hand out fresh pages than to copy entries into them, and a run decodes batch after batch.

    Parameters
    ----------
    like : Tensor
        Has their dtype and device.
    shape : tuple of int
    memory : list of Tensor, optional
        What earlier calls with this list allocated; it grows to the largest shape, and the earlier tensors are lost.

    Returns
    -------
    keys, values : Tensor
    """
    if memory is None:
        return like.new_empty(shape), like.new_empty(shape)
    size = math.prod(shape)
    if not memory or memory[0].numel() < size:
        memory.clear()
        give_back()
        memory += [like.new_empty(size), like.new_empty(size)]
    keys, values = (flat[:size].view(shape) for flat in memory)
    return keys, values


def give_back() -> None:
    """Hand freed memory to the system before more is taken: between live blocks glibc keeps what temporaries leave."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim:
            trim(0)


def moved_up(x: Tensor, index: Tensor) -> Tensor:
    """Some rows of x (B, ...); fewer of them move up in its own memory, so that none is needed beside it."""
    rows = x[index]
    return x[: len(index)].copy_(rows) if len(index) < len(x) else rows
