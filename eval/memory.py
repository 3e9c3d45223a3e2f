"""How much memory a decode batch may take, and what running out of it looks like."""

import psutil
import torch


def free_bytes(device: torch.device) -> int:
    """Free memory of the device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def out_of_memory(problem: BaseException) -> bool:
    """Whether an exception says that memory ran out, on a GPU or on the CPU."""
    text = str(problem).lower()
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text
