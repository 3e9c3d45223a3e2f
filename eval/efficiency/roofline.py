"""Roofline: the least time that decoding and prefill can take on a device whose rates are measured in the same run."""

from typing import Any, NamedTuple

import torch

from eval.efficiency.measure import timed

REPEATS = 5


class Rates(NamedTuple):
    """What the device reaches: bytes a second of reading or copying memory, operations a second of a matmul."""

    bandwidth: float
    operations: float


class Work(NamedTuple):
    """What a phase cannot avoid: bytes that it reads, multiplications and additions that it makes."""

    bytes: float
    operations: float

    def least_seconds(self, rates: Rates) -> float:
        """Time of the slower of the two, if they overlap perfectly."""
        return max(self.bytes / rates.bandwidth, self.operations / rates.operations)


def measured_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Best of several runs of a sum and a copy of 256 MiB, and of a square matmul in the model's dtype."""
    side = 8192 if device.type == "cuda" else 2048
    x = torch.ones(2**26, dtype=torch.float32, device=device)
    y = torch.empty_like(x)
    a = torch.randn(side, side, device=device).to(dtype)
    times = [min(timed(work, device)[0] for _ in range(REPEATS)) for work in (x.sum, lambda: y.copy_(x), lambda: a @ a)]
    return Rates(max(x.nbytes / times[0], 2 * x.nbytes / times[1]), 2 * side**3 / times[2])


def weights_read(model: Any) -> tuple[int, int]:
    """Bytes of the weights that one step reads, and how many they are: all but an embedding that is only looked up."""
    head = model.get_output_embeddings().weight
    looked_up = model.get_input_embeddings().weight
    read = [p for p in model.parameters() if p is not looked_up or p is head]
    return sum(p.nbytes for p in read), sum(p.numel() for p in read)


def decode_work(model: Any, kv_bytes: float) -> Work:
    """One step of one row: the weights once, the row's keys and values once."""
    config = model.config.get_text_config()
    size, count = weights_read(model)
    group = config.num_attention_heads // config.num_key_value_heads
    # every K or V element is multiplied and added once for each query head of its group
    return Work(size + kv_bytes, 2 * count + 2 * group * kv_bytes / model.dtype.itemsize)


def prefill_work(model: Any, n: int, layers: Any) -> Work:
    """A prompt of n tokens: every weight for each token but the head's (once), causal attention within the windows."""
    config = model.config.get_text_config()
    size, count = weights_read(model)
    head = model.get_output_embeddings().weight.numel()
    pairs = sum(_pairs(n, layer.sliding_window) for layer in layers)
    d = layers[0].keys.shape[-1]
    return Work(size, 2 * n * (count - head) + 2 * head + 4 * config.num_attention_heads * d * pairs)


def _pairs(n: int, window: int | None) -> int:
    """Query and key pairs of causal attention."""
    reach = min(n, window or n)
    return reach * (reach + 1) // 2 + (n - reach) * reach
