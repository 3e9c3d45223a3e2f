"""How much memory a decode batch may take."""

import psutil
import torch


def free_bytes(device: torch.device) -> int:
    """Free memory of the device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
