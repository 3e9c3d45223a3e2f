"""Moving keys: every kind of rotary embedding against the model's own, both anchors, and what is refused."""

import sys
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import Cache

import selkv
from eval.arms import Arm
from eval.prompts import Protocol
from eval.worker import Settings, Worker
from selkv.cache import CompressedCache, CompressedLayer
from selkv.compression import Job, compressed_layers
from selkv.errors import UserError
from selkv.prefill import forward, prefill
from selkv.recording import RecordingLayer
from selkv.rotary import close_gaps, inverse_frequencies, rotate
from selkv.selkv import SelKV
from selkv.state import Kept, Needs
from tests.models import build, tokens

N = 40
THETA = {"rope_theta": 10000.0}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("llama", {}),
    "linear": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, **THETA}}),
    "llama3": ("llama", {"rope_parameters": {"rope_type": "llama3", **LLAMA3, **THETA}}),
    # scales cos and sin by a constant
    "yarn": (
        "llama",
        {"rope_parameters": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, **THETA}},
    ),
    # the second half of each head is not rotated
    "partial": ("phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, **THETA}}),
    # another base on sliding layers
    "per_layer_type": ("gemma3", {"sliding_window": 64}),
    "qwen3": ("qwen3", {}),
}
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, **THETA}}),
    "longrope": (
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
                "factor": 8.0,
                **THETA,
            },
            "original_max_position_embeddings": 512,
        },
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def model_of(kind: str) -> Any:
    family, changes = {**KINDS, **REFUSED}[kind]
    return build(family, **changes)


def recorded_keys(model: Any, ids: Tensor, first: int) -> list[Tensor]:
    """Keys (Hkv, n, d) of every layer, the prompt starting at position `first`."""
    layers = [RecordingLayer(Needs(), N) for _ in range(4)]
    with torch.no_grad():
        forward(model, ids, Cache(layers=list(layers)), torch.arange(first, first + N)[None])
    return [layer.keys[0] for layer in layers]


@every_kind
def test_rotation_equals_the_models_own_embedding(kind: str) -> None:
    model = model_of(kind)
    embed = sys.modules[type(model).__module__].apply_rotary_pos_emb
    types = getattr(model.config, "layer_types", None) or [None] * 4
    heads, d = 2, model.model.layers[0].self_attn.head_dim
    raw = torch.randn(1, heads, N, d, generator=torch.Generator().manual_seed(0))
    old, new = (torch.randint(0, 3000, (N,), generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    for layer, frequency in enumerate(inverse_frequencies(model, 4)):
        assert frequency is not None
        per_type = {"layer_type": types[layer]} if kind == "per_layer_type" else {}
        at_old, at_new = (embed(raw, raw, *model.model.rotary_emb(raw, p[None], **per_type))[1] for p in (old, new))
        moved = rotate(at_old[0], new - old, frequency)
        assert (moved - at_new[0]).abs().max() < 2e-3  # angles of thousands of radians in float32
        assert (at_old - at_new).abs().max() > 0.5
    if kind == "per_layer_type":
        first, last = inverse_frequencies(model, 6)[0], inverse_frequencies(build("gemma3", num_hidden_layers=6), 6)[5]
        assert first is not None and last is not None and not torch.equal(first, last)


@every_kind
def test_a_shifted_prompt_has_rotated_keys_in_every_layer(kind: str) -> None:
    # attention sees distances only, so a later start rotates each layer's keys and changes nothing else
    model, ids = model_of(kind), tokens(N)
    here, there = recorded_keys(model, ids, 0), recorded_keys(model, ids, 25)
    for x, y, frequency in zip(here, there, inverse_frequencies(model, 4), strict=True):
        assert frequency is not None
        assert (rotate(x, torch.full((N,), 25), frequency) - y).abs().max() < 1e-3
        assert (rotate(x, torch.full((N,), 24), frequency) - y).abs().max() > 1e-2


@every_kind
def test_both_anchors_give_the_same_logits(kind: str) -> None:
    model, ids, question = model_of(kind), tokens(N), tokens(5, seed=3)
    job = Job(SelKV(recent=4, reposition=True), Fraction(1, 4))
    state = prefill(model, ids, Needs(window=32))
    m = N // 4
    at_end = [kept for _, (kept,) in compressed_layers([job], state)]
    at_start = [
        kept._replace(
            keys=rotate(kept.keys, torch.full_like(kept.positions, m - N), layer.inv_freq),
            positions=torch.arange(m).expand_as(kept.positions),
        )
        for kept, layer in zip(at_end, state.layers, strict=True)
        if layer.inv_freq is not None
    ]
    ended, started = logits(model, question, at_end, N), logits(model, question, at_start, m)
    assert (ended - started).abs().max() < 1e-3 * ended.abs().max()
    left = [kept for _, (kept,) in compressed_layers([Job(SelKV(recent=4), Fraction(1, 4))], state)]
    assert (logits(model, question, left, N) - ended).abs().max() > 1e-2 * ended.abs().max()
    assert [kept.positions.tolist() for kept in at_end] == [kept.positions.tolist() for kept in left]


def logits(model: Any, question: Tensor, kepts: list[Kept], position: int) -> Tensor:
    lengths, count = torch.tensor([position]), question.shape[1]
    cache = CompressedCache([CompressedLayer([kept], lengths, count) for kept in kepts], lengths)
    with torch.no_grad():
        return forward(model, question, cache, torch.arange(count)[None] + position, logits_to_keep=count)[0]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), shift=st.integers(-500, 500), base=st.sampled_from([1e4, 5e5]))
def test_round_trips_and_relative_scores(seed: int, shift: int, base: float) -> None:
    draw, d = torch.Generator().manual_seed(seed), 16
    frequency = base ** -(torch.arange(0, d, 2) / d)
    keys, query = torch.randn(2, 9, d, generator=draw), torch.randn(2, 1, d, generator=draw)
    steps = torch.randint(-300, 300, (2, 9), generator=draw)
    assert torch.equal(rotate(keys, torch.zeros(2, 9, dtype=torch.long), frequency), keys)
    assert (rotate(rotate(keys, steps, frequency), -steps, frequency) - keys).abs().max() < 1e-4
    moved_keys = rotate(keys, torch.full((2, 9), shift), frequency)
    moved_query = rotate(query, torch.full((2, 1), shift), frequency)
    difference = (moved_query @ moved_keys.transpose(1, 2) - query @ keys.transpose(1, 2)).abs().max()
    assert difference < 2e-3
    # a contiguous suffix is moved as a whole
    suffix = torch.arange(50, 59).expand(2, -1)
    closed = close_gaps(keys, suffix, 58 + shift, frequency)
    assert (closed - moved_keys).abs().max() < 1e-5


def test_heads_of_different_length_close_their_own_gaps() -> None:
    frequency, keys = torch.tensor([1.0, 0.1]), torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[1, 4, 6, 9], [2, 7, -1, -1]])
    closed = close_gaps(keys, positions, 9, frequency)
    expected = [
        rotate(keys[0], torch.tensor([5, 3, 2, 0]), frequency),
        rotate(keys[1, :2], torch.tensor([6, 2]), frequency),
    ]
    assert torch.equal(closed[0], expected[0]) and torch.equal(closed[1, :2], expected[1])


def test_half_precision_is_rotated_in_float32() -> None:
    keys = torch.randn(1, 9, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    shift, frequency = torch.arange(9)[None] * 100, 10000.0 ** -(torch.arange(0, 16, 2) / 16)
    moved = rotate(keys, shift, frequency)
    assert moved.dtype == torch.bfloat16
    assert torch.equal(moved, rotate(keys.float(), shift, frequency).bfloat16())


@pytest.mark.parametrize("kind", REFUSED)
def test_changing_frequencies_are_refused_in_one_line_before_prefill(kind: str, monkeypatch: Any) -> None:
    model = model_of(kind)
    assert inverse_frequencies(model, 4) == [None] * 4
    prefill(model, tokens(8), SelKV().needs(8, 2))  # all else works
    monkeypatch.setattr("selkv.prefill.forward", lambda *_, **__: pytest.fail("ran before the refusal"))
    with pytest.raises(UserError, match="dynamic NTK") as refusal:
        selkv.compress(model, tokens(N), SelKV(reposition=True), 0.25)
    assert "\n" not in str(refusal.value)


def test_a_run_is_refused_when_its_worker_starts() -> None:
    model, arm = model_of("dynamic"), Arm("selkv", "selkv", "", {}, Fraction(1, 4))
    settings = Settings(Protocol(), {}, 0)
    with pytest.raises(UserError, match="reposition"):
        Worker(model, None, [arm], [SelKV(reposition=True)], settings, {})
    Worker(model, None, [arm], [SelKV()], settings, {})
