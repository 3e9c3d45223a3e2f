"""How much memory is free, and whether it is enough."""

import psutil
import torch

from selkv.errors import UserError


def free_bytes(device: torch.device) -> int:
    """Free memory of the device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def require(need: float, device: torch.device, what: str) -> None:
    """Raise UserError unless so many bytes are free: said before the system stops the process."""
    free = free_bytes(device)
    if need > free:
        raise UserError(f"{what} needs {need / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free; give smaller sizes")
