"""Compressing a single prompt needs little beyond the K/V that is already held."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch

from selkv.api import _only, compress
from selkv.compression import Job, compressed_layers
from selkv.full import Full
from selkv.prefill import Prefill, prefill
from selkv.selkv import SelKV
from selkv.state import LayerState
from tests.models import build, tokens

WINDOW = 32


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes allocated at the highest point of the work; what was allocated before, the profiler does not know."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    now = highest = 0
    for _, change in sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"):
        now += change
        highest = max(highest, now)
    return highest


def layers(count: int, heads: int, kv_heads: int, n: int, d: int) -> list[LayerState]:
    draw = torch.Generator().manual_seed(0)
    return [
        LayerState(
            keys=torch.randn(kv_heads, n, d, generator=draw),
            values=torch.randn(kv_heads, n, d, generator=draw),
            queries=torch.randn(heads, WINDOW, d, generator=draw),
            positions=torch.arange(n),
            scale=d**-0.5,
            layer=i,
            layers=count,
        )
        for i in range(count)
    ]


@torch.no_grad()
def consume(states: list[LayerState], job: Job) -> list[Any]:
    """The library's path of one prompt."""
    return list(map(_only, compressed_layers([job], Prefill(states, torch.empty(0), states[0].n), release=True)))


# 8 KV heads of 32 as in Llama-3.1; SmolLM2's 3 of 9 leave an eighth of the attention's size for what is smaller
@pytest.mark.parametrize(("heads", "kv_heads", "d", "room"), [(32, 8, 128, 1.0), (9, 3, 64, 1.1), (8, 8, 128, 1.1)])
def test_one_window_attention_and_one_layer_kept(heads: int, kv_heads: int, d: int, room: float) -> None:
    n, job = 4096, Job(SelKV(), Fraction(1, 4))
    attention, kept = 4 * heads * WINDOW * n, 2 * 4 * kv_heads * (n // 4) * d
    states: list[LayerState] = []

    def work() -> None:
        states.extend(layers(3, heads, kv_heads, n, d))
        consume(states, job)

    held = 3 * 4 * (2 * kv_heads * n + heads * WINDOW) * d + 3 * 8 * n
    highest = peak_of(work) - held
    assert highest <= room * (attention + kept), f"{highest / (attention + kept):.2f} of what is allowed"
    assert states == [None] * 3


def test_the_meter_sees_a_copy() -> None:
    states = layers(1, 4, 2, 1024, 16)
    assert peak_of(lambda: states[0].keys.clone()) >= states[0].keys.nbytes


class Led(Full):
    """Layers 1 and 2 ask for layer 0."""

    def leader(self, layer: int) -> int:
        return 0 if layer < 3 else layer


def test_a_layer_stays_as_long_as_another_one_reads_it() -> None:
    states = layers(4, 4, 2, 64, 8)
    seen = []
    for _ in compressed_layers([Job(Led(), Fraction(1))], Prefill(states, torch.empty(0), 64), release=True):
        seen.append([state is not None for state in states])
    assert seen == [[True] * 4, [True] * 4, [True, False, True, True], [False, False, False, True]]


def test_the_library_lets_go_and_a_grid_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[Prefill] = []

    def remembered(*arguments: Any, **options: Any) -> Prefill:
        states.append(prefill(*arguments, **options))
        return states[-1]

    monkeypatch.setattr("selkv.api.prefill", remembered)
    compress(build("llama"), tokens(48), ratio="0.5")
    assert all(layer is None for layer in states[0].layers)
    state = prefill(build("llama"), tokens(48))
    list(compressed_layers([Job(SelKV(), Fraction(1, 2))], state))
    assert all(layer is not None for layer in state.layers)
