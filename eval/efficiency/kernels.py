"""Which operations a piece of work makes: the attention kernel that ran, waits for the device, copies of the cache."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

FUSED = "_scaled_dot_product_"


class Calls(TorchDispatchMode):
    """Counts operations by name while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count and go on."""
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def attention_kernel(work: Callable[[], Any]) -> str:
    """Fused attention kernels that the work calls; ``not fused`` where there is none (soft-cap, native decoding)."""
    with Calls() as calls:
        work()
    return "+".join(sorted(n.removeprefix(FUSED) for n in calls.names if n.startswith(FUSED))) or "not fused"
