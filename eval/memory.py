"""How much memory a decode batch may take."""

import ctypes
import sys
from typing import Any

import psutil
import torch

from selkv.cache import CompressedLayer


def free_bytes(device: torch.device) -> int:
    """Free memory of the device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


class FrugalLayer(CompressedLayer):
    """A layer for batches that nearly fill their budget: what temporaries have left goes back to the system first.

    glibc keeps freed memory between live blocks, a third of a batch's bytes while 30 layers are compressed.
    """

    def __init__(self, *arguments: Any) -> None:
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
            if trim:
                trim(0)
        super().__init__(*arguments)
