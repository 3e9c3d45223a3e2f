"""Decoding over compressed caches equals a full-length reference on every family, with controls that must fail."""

from fractions import Fraction

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache

from selkv.cache import CompressedCache, CompressedLayer
from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, greedy
from selkv.errors import UserError
from selkv.full import Full
from selkv.prefill import cache_argument, forward, prefill
from selkv.selkv import SelKV
from selkv.state import Kept, take
from selkv.window import visible
from tests.models import FAMILIES, build, tokens

N, QUESTION = 48, 5


def random_kept(state, keep, generator):
    """A different random set per head, unequal over layers, with random biases."""
    heads, n = state.kv_heads, state.n
    m = min(n, keep - 2 * state.layer)
    index = torch.stack([torch.randperm(n, generator=generator)[:m].sort().values for _ in range(heads)])
    return Kept(
        take(state.keys, index), take(state.values, index), torch.rand(heads, m, generator=generator) * 3,
        state.positions[index],
    ), index  # fmt: skip


class Reference:
    """Full-length attention in plain float64 operations: what was evicted is hidden by -inf, biases are added."""

    def __init__(self, chosen):
        self.chosen = chosen  # per layer: bias (Hkv, N) over prompt positions, -inf where evicted

    def __call__(self, module, query, key, value, mask, scaling=None, softcap=None, sliding_window=None, **_):
        heads, count, total = query.shape[1], query.shape[2], key.shape[2]
        group = heads // key.shape[1]
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        logits = query.double() @ key.double().repeat_interleave(group, 1).transpose(2, 3) * scale
        logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
        bias = torch.zeros(key.shape[1], total, dtype=torch.float64)
        bias[:, :N] = self.chosen[module.layer_idx]
        logits = logits + bias.repeat_interleave(group, 0)[None, :, None]
        asked = torch.arange(total - count, total)
        logits = logits.masked_fill(~visible(asked, torch.arange(total), sliding_window), float("-inf"))
        out = logits.softmax(-1) @ value.double().repeat_interleave(group, 1)
        return out.to(query.dtype).transpose(1, 2), None


def reference_logits(family, ids, question, chosen):
    """Prefill with the stock cache, then the question under `Reference`; logits (Q, V) in float64."""
    model = build(family, "eager", dtype=torch.float64)
    cache = DynamicCache()  # no config: full length also on sliding layers
    with torch.no_grad():
        model(ids, **{cache_argument(model): cache})
        AttentionInterface.register("reference", Reference(chosen))
        AttentionMaskInterface.register("reference", lambda *_, **__: None)
        model.set_attn_implementation("reference")
        return model(question, **{cache_argument(model): cache}).logits[0]


def compressed_logits(family, ids, question, kepts, shift=0):
    """The same through our caches in float64."""
    model = build(family, dtype=torch.float64)
    lengths = torch.tensor([ids.shape[1]])
    cache = CompressedCache([CompressedLayer([kept], lengths, QUESTION) for kept in kepts], lengths)
    positions = torch.arange(question.shape[1])[None] + ids.shape[1] + shift
    with torch.no_grad():
        return forward(model, question, cache, positions, logits_to_keep=question.shape[1])[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_decode_equals_full_length_reference(family):
    ids, question = tokens(N), tokens(QUESTION, seed=3)
    state = prefill(build(family, dtype=torch.float64), ids)
    generator = torch.Generator().manual_seed(5)
    pairs = [random_kept(layer, 24, generator) for layer in state.layers]
    kepts = [kept for kept, _ in pairs]
    chosen = []
    for layer, (kept, index) in zip(state.layers, pairs, strict=True):
        bias = torch.full((layer.kv_heads, N), float("-inf"), dtype=torch.float64)
        chosen.append(bias.scatter_(1, layer.positions[index], kept.bias.double()))
    expected = reference_logits(family, ids, question, chosen)
    got = compressed_logits(family, ids, question, kepts)
    assert (got - expected).abs().max() < 1e-6

    # controls: each mistake must be visible
    wrong = [
        [kept._replace(bias=torch.zeros_like(kept.bias)) for kept in kepts],
        [kept._replace(keys=kept.keys.flip(0), values=kept.values.flip(0)) for kept in kepts],
    ]
    for mistake in wrong:
        assert (compressed_logits(family, ids, question, mistake) - expected).abs().max() > 1e-4
    with pytest.raises(UserError, match=r"position 49 .* goes on at position 48"):
        compressed_logits(family, ids, question, kepts, shift=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batch_equals_rows_alone(family):
    model = build(family)
    state = prefill(model, tokens(N))
    jobs = [Job(Full(), Fraction(1)), *(Job(SelKV(recent=4), Fraction(r)) for r in ("0.8", "0.4", "0.1", "1"))]
    together = greedy(model, compressed_cache(jobs, state, 12)[0], state.logits, 12, Stop())
    alone = [greedy(model, compressed_cache([job], state, 12)[0], state.logits, 12, Stop())[0] for job in jobs]
    assert together == alone
    assert together[0] == together[-1]  # ratio 1 is the full cache, token for token
    assert len({tuple(text) for text in together}) > 1  # compression shows


@pytest.mark.parametrize("family", FAMILIES)
def test_full_arm_equals_stock_generation(family):
    ids = tokens(N)
    model = build(family)
    state = prefill(model, ids)
    ours = greedy(model, compressed_cache([Job(Full(), Fraction(1))], state, 10)[0], state.logits, 10, Stop())
    stock = build(family, "eager")
    stock.generation_config.eos_token_id = None
    expected = stock.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False)
    assert ours[0] == expected[0, N:].tolist()


def test_rows_stop_on_their_own_and_leave_the_batch():
    model = build("llama")
    state = prefill(model, tokens(N))
    jobs = [Job(SelKV(recent=4), Fraction(r)) for r in ("1", "0.5", "0.3", "0.1")]
    free = greedy(model, compressed_cache(jobs, state, 20)[0], state.logits, 20, Stop())
    late = [
        next((t for i, t in enumerate(text) if text.index(t) == i and i > 2 * row), None)
        for row, text in enumerate(free)
    ]
    stop = Stop(ids=frozenset(late) - {None})
    cut = greedy(model, compressed_cache(jobs, state, 20)[0], state.logits, 20, stop)
    for text, whole in zip(cut, free, strict=True):
        assert text == whole[: next((i for i, t in enumerate(whole) if t in stop.ids), None)]
    assert len({len(text) for text in cut}) > 1


def test_stop_ids_are_ruled_out_before_the_minimum():
    model = build("llama")
    state = prefill(model, tokens(N))
    job = Job(Full(), Fraction(1))
    free = greedy(model, compressed_cache([job], state, 8)[0], state.logits, 8, Stop())[0]
    assert greedy(model, compressed_cache([job], state, 8)[0], state.logits, 8, Stop({free[0]}))[0] == []
    kept = greedy(model, compressed_cache([job], state, 8)[0], state.logits, 8, Stop({free[0]}, min_new_tokens=1))[0]
    assert kept and kept[0] == int(state.logits.topk(2).indices[1])


def test_summaries_hold_no_entries():
    state = prefill(build("llama"), tokens(N))
    _, (summary,) = compressed_cache([Job(SelKV(), Fraction(1, 2))], state, 2)
    for kept in summary:
        assert kept.keys.untyped_storage().nbytes() == kept.values.untyped_storage().nbytes() == 0
        assert kept.entries == state.layers[0].kv_heads * N // 2


def test_caches_of_a_run_share_their_memory():
    model, memory = build("llama"), {}
    state, other = prefill(model, tokens(N)), prefill(model, tokens(N - 7, seed=3))
    jobs = [Job(SelKV(recent=4), Fraction(k, 8)) for k in (2, 4, 6)]
    where = set()
    for batch, prompt in ((jobs, state), (jobs[:1], state), (jobs[1:], other), (jobs, state)):
        cache, _ = compressed_cache(batch, prompt, 8, memory=memory)
        where.add(cache.layers[0].keys.data_ptr())
        stop = Stop({greedy(model, compressed_cache(batch, prompt, 8)[0], prompt.logits, 8, Stop())[0][2]})
        alone = greedy(model, compressed_cache(batch, prompt, 8)[0], prompt.logits, 8, stop)
        assert greedy(model, cache, prompt.logits, 8, stop) == alone
        where.add(cache.layers[0].keys.data_ptr())
    assert len(where) == 1


@pytest.mark.parametrize("n", [1, 2, 5, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("ratio", ["0.01", "0.25", "1"])
def test_short_prompts(n, ratio):
    for family in ("llama", "llama_mha", "gemma2"):
        model = build(family)
        state = prefill(model, tokens(n))
        cache, summary = compressed_cache([Job(SelKV(), Fraction(ratio))], state, 3)
        assert all(int((kept.positions >= 0).sum(1).min()) >= 1 for kept in summary[0])
        logits = forward(model, state.logits.argmax().reshape(1, 1), cache, torch.tensor([[n]]))
        assert torch.isfinite(logits).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close(dtype):
    ids = tokens(N)
    logits = {}
    for kind in (torch.float32, dtype):
        model = build("llama", dtype=kind)
        state = prefill(model, ids)
        cache, _ = compressed_cache([Job(SelKV(recent=4), Fraction(1, 2))], state, 2)
        logits[kind] = forward(model, torch.tensor([[7]]), cache, torch.tensor([[N]])).float()
    assert torch.isfinite(logits[dtype]).all()
    assert torch.nn.functional.cosine_similarity(logits[dtype].flatten(), logits[torch.float32].flatten(), dim=0) > 0.98
