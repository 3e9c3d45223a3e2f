"""Compressing one layer of Llama-3.1's shape costs at most three times its window attention."""

import time
from collections.abc import Callable, Iterator

import pytest
import torch

from selkv.selkv import SelKV
from selkv.state import LayerState

N, HEADS, KV_HEADS, D = 32768, 32, 8, 128


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for a core that others use would count as work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cost(work: Callable[[], object]) -> float:
    """Processor seconds: unlike wall time, not at the mercy of whatever else the machine does."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compression_costs_at_most_three_window_attentions(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(heads, count, D, generator=draw).to(dtype)
        for heads, count in ((HEADS, 32), (KV_HEADS, N), (KV_HEADS, N))
    )
    layer = LayerState(keys=keys, values=values, queries=queries, positions=torch.arange(N), scale=D**-0.5)
    method = SelKV()
    cost(lambda: method.compress(layer, KV_HEADS * N // 4))  # the first touch of memory is not counted
    ratios = [
        cost(lambda: method.compress(layer, KV_HEADS * N // 4)) / cost(lambda: layer.window_attention(32))
        for _ in range(3)
    ]
    assert sorted(ratios)[1] <= 3, f"{ratios}"
