"""A decode step copies no cache, repeats no heads, builds no mask that is not needed and waits for the device once."""

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eval.efficiency.kernels import Calls, attention_kernel
from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, greedy
from selkv.full import Full
from selkv.prefill import prefill
from selkv.selkv import SelKV
from tests.models import build, tokens

N = 512
JOBS = {"full": Job(Full(), Fraction(1)), "selkv": Job(SelKV(recent=4), Fraction(1, 2))}


class Fresh(TorchDispatchMode):
    """Largest new storage of any operation, in bytes, with the operation's name."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = (0, "")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in known:
                self.largest = max(self.largest, (x.untyped_storage().nbytes(), str(func)))
        return out


def prepared(name: str, room: int = 12, family: str = "llama", rows: int = 1) -> tuple[Any, Any, Any]:
    """A model, a compressed cache (with biases for SelKV), and the first logits."""
    model = build(family)
    state = prefill(model, tokens(N))
    with torch.no_grad():
        cache, _ = compressed_cache([JOBS[name]] * rows, state, room)
    return model, cache, state.logits


@pytest.mark.parametrize("name", JOBS)
def test_a_step_makes_nothing_as_large_as_the_keys_of_a_layer(name: str) -> None:
    model, cache, logits = prepared(name)
    assert (cache.layers[0].mask is None) == (name == "full")
    buffers = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers]
    keys = cache.layers[0].keys.nbytes
    with Fresh() as fresh:
        greedy(model, cache, logits, 12, Stop())
    assert fresh.largest[0] < keys / 2, f"{fresh.largest} beside keys of {keys} bytes"
    assert [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in cache.layers] == buffers


def test_the_tracker_sees_a_copied_cache() -> None:
    _, cache, _ = prepared("full")
    keys = cache.layers[0].keys
    with Fresh() as fresh:
        torch.cat([keys, keys[:, :, :1]], 2)
    assert fresh.largest[0] > keys.nbytes
    with Fresh() as fresh:
        keys.repeat_interleave(4, 1)
    assert fresh.largest[0] >= 4 * keys.nbytes


def extra_calls(name: str, family: str = "llama", stop: Stop | None = None, rows: int = 1) -> Calls:
    """What three more steps add."""
    counts = []
    for new in (4, 7):
        model, cache, logits = prepared(name, family=family, rows=rows)
        with Calls() as calls:
            greedy(model, cache, logits, new, stop or Stop())
        counts.append(calls)
    counts[1].names.subtract(counts[0].names)
    return counts[1]


@pytest.mark.parametrize("name", JOBS)
def test_one_wait_for_the_device_a_step(name: str) -> None:
    names = extra_calls(name, stop=Stop(ids={127}), rows=3).names
    assert names["_local_scalar_dense"] == 3
    assert names["nonzero"] == names["masked_select"] == 0


@pytest.mark.parametrize("name", JOBS)
def test_no_mask_is_built_where_none_is_needed(name: str) -> None:
    names = extra_calls(name).names
    assert names["where"] == 3  # one a step, for the tokens of rows that have ended
    assert names["masked_fill"] == names["full"] == names["zeros"] == 0
    window = extra_calls(name, family="mistral_window").names
    assert window["where"] == 3 + 3 * 4  # beyond its window each of the four layers needs a mask


@pytest.mark.parametrize("name", JOBS)
def test_decoding_stays_on_the_fused_kernel(name: str) -> None:
    model, cache, logits = prepared(name)
    assert attention_kernel(lambda: greedy(model, cache, logits, 4, Stop())) == "flash_attention_for_cpu"
    model, cache, logits = prepared(name, family="gemma2")  # a soft-cap is exact only without it
    assert attention_kernel(lambda: greedy(model, cache, logits, 4, Stop())) == "not fused"
