"""Prefill records what the model's own attention would have shown, on every family, in one pass, two or chunks."""

import pytest
import torch

from selkv.prefill import cache_argument, prefill
from selkv.state import Needs
from tests.models import FAMILIES, build, tokens

WINDOW = 8


def eager_attention(family: str, ids: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Attention (H, n, n) of every layer and the logits (n, V) from the model's own eager attention."""
    out = build(family, "eager")(ids, output_attentions=True)
    return [a[0].detach() for a in out.attentions], out.logits[0].detach()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [{}, {"chunk": 17}, {"mode": "two_pass"}], ids=["one", "chunk", "two"])
def test_window_attention_equals_the_models_own(family, options):
    ids = tokens(60)
    expected, logits = eager_attention(family, ids)
    got = prefill(build(family), ids, Needs(window=WINDOW), **options)
    assert (got.logits - logits[-1]).abs().max() < 1e-4
    assert got.n == 60
    for layer, reference in zip(got.layers, expected, strict=True):
        difference = (layer.window_attention(WINDOW) - reference[:, -WINDOW:, -layer.n :]).abs().max()
        assert difference < 1e-5, f"layer {layer.layer}: {difference}"
        assert layer.positions.tolist() == list(range(60 - layer.n, 60))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [None, 17])
def test_sums_over_all_queries_equal_the_models_own(family, chunk, monkeypatch):
    monkeypatch.setattr("selkv.recording.BLOCK_LOGITS", 8 * 60 * 7)  # several blocks
    ids, bucket = tokens(60), 7
    expected, _ = eager_attention(family, ids)
    got = prefill(build(family), ids, Needs(WINDOW, column_mass=True, blocks=frozenset({bucket})), chunk=chunk)
    for layer, reference in zip(got.layers, expected, strict=True):
        n = layer.n
        assert (layer.column_mass - reference.sum(1)[:, -n:]).abs().max() < 1e-4
        square = reference[:, -n:, -n:]
        for j in range(n):
            start = j // bucket * bucket
            own = square[:, j, start : start + bucket]
            assert (layer.block_attention[bucket][:, j, : own.shape[1]] - own).abs().max() < 1e-5


def test_a_recorded_layer_counts_its_keys_once_with_two_passes():
    ids = tokens(40)
    one, two = (
        prefill(build("llama"), ids, Needs(8, column_mass=True), mode=mode) for mode in ("one_pass", "two_pass")
    )
    for a, b in zip(one.layers, two.layers, strict=True):
        assert (a.column_mass - b.column_mass).abs().max() < 1e-5


@pytest.mark.parametrize("n", [1, 2, 5])
def test_prompts_shorter_than_the_window(n):
    ids = tokens(n)
    got = prefill(build("gemma2"), ids, Needs(window=32))
    assert all(layer.window_attention(32).shape == (8, n, n) for layer in got.layers)


def test_cache_argument_is_one_that_the_model_knows():
    assert cache_argument(build("llama")) in ("cache", "past_key_values")
