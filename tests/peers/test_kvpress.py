"""kvpress both ways: its presses as methods equal its own pipeline, our methods in its pipeline equal our own loop."""

import dataclasses
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import kvpress
import pytest
import torch
from transformers import DynamicCache, pipeline

from baselines.kvpress import KVPress, origins, press_of
from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, ask, greedy
from selkv.errors import UserError
from selkv.full import Full
from selkv.kvpress import SelKVPress, SelKVValuesPress, kept_share
from selkv.named import method_named
from selkv.prefill import prefill
from selkv.selkv import SelKV
from tests.models import build, tokens
from tests.tokenizer import words

ROOT = Path(__file__).resolve().parents[2]
NEW = 8
CONTEXT = " ".join(
    f"w{i}" for i in torch.randperm(120, generator=torch.Generator().manual_seed(1)).add(7).tolist()[:70]
)
QUESTIONS = ["w9 w12 w80", "w33 w7"]


def piped(family="llama", attention="sdpa", **changes):
    """kvpress's own pipeline; answers never end early."""
    model = build(family, attention, **changes)
    model.generation_config.eos_token_id = None
    return pipeline("kv-press-text-generation", model=model, tokenizer=words())


def ids_of(pipe):
    prepared = pipe.preprocess(CONTEXT, QUESTIONS, "", 10**6)
    return prepared["context_ids"][0], [question[0].tolist() for question in prepared["questions_ids"]]


def own_answers(family, method, ratio, sliding_layers="compress", **changes):
    """Our own loop: context, compression, question, greedy."""
    model = build(family, **changes)
    context, questions = ids_of(piped(family, **changes))
    state = prefill(model, context, method.needs(len(context), len(context)))
    job = Job(method.bound(model, context, ratio), ratio)
    answers = []
    for question in questions:
        cache, _ = compressed_cache([job], state, NEW, sliding_layers)
        answers.append(greedy(model, cache, ask(model, cache, question), NEW, Stop())[0])
    return [words().decode(answer, skip_special_tokens=True) for answer in answers]


PRESSES = [
    "KnormPress",
    "ExpectedAttentionPress(n_sink=2)",
    "TOVAPress",
    "SnapKVPress(window_size=8)",
    "PyramidKVPress(window_size=8)",
]


@pytest.mark.parametrize("family", ["llama", "phi3", "llama_mha"])
@pytest.mark.parametrize("press", PRESSES)
def test_press_as_a_method_equals_its_own_pipeline(press, family):
    expected = piped(family)(CONTEXT, questions=QUESTIONS, press=press_of(press, Fraction(3, 10)), max_new_tokens=NEW)[
        "answers"
    ]
    got = own_answers(family, KVPress(press), Fraction(3, 10))
    assert got == expected
    assert got != own_answers(family, Full(), Fraction(1))  # compression shows


def test_head_wise_press_as_a_method_equals_its_own_pipeline():
    # kvpress hides entries behind a key that no query likes; it finds one for few queries of many dimensions
    wide = {"head_dim": 64}
    press = "AdaKVPress(KnormPress())"
    expected = piped("llama_mha", **wide)(
        CONTEXT, questions=QUESTIONS, press=press_of(press, Fraction(3, 10)), max_new_tokens=NEW
    )["answers"]
    assert own_answers("llama_mha", KVPress(press), Fraction(3, 10), **wide) == expected


def test_press_that_needs_all_attention_weights():
    pipe = piped(attention="eager")
    press = kvpress.ObservedAttentionPress(0.7)
    expected = pipe(CONTEXT, questions=QUESTIONS, press=press, max_new_tokens=NEW)["answers"]
    assert own_answers("llama", KVPress("ObservedAttentionPress", attention="eager"), Fraction(3, 10)) == expected


def test_measured_budget_and_positions():
    model, ids = build("llama"), tokens(50)[0]
    state = prefill(model, ids)
    bound = KVPress("AdaKVPress(KnormPress())").bound(model, ids, Fraction(3, 10))
    budgets = bound.budgets(state, Fraction(3, 10))
    assert budgets == [2 * 15] * 4 and not bound.exact
    for layer, budget in zip(state.layers, budgets, strict=True):
        kept = bound.compress(layer, budget)
        true = kept.positions >= 0
        assert kept.entries == budget and torch.equal(true, kept.bias == 0)
        for head in range(2):
            at = kept.positions[head, true[head]]
            assert torch.equal(layer.keys[head, at], kept.keys[head, true[head]])
            assert torch.equal(at, at.sort().values)
    assert {int((bound.compress(layer, 30).positions[0] >= 0).sum()) for layer in state.layers} != {15}  # heads differ
    assert all(getattr(module, "masked_key_indices", None) is None for module in model.modules())


def test_entries_that_a_sliding_layer_cannot_see_do_not_count():
    model, ids = build("mistral_window"), tokens(50)[0]
    state = prefill(model, ids)
    for layer, budget in zip(
        state.layers, KVPress("KnormPress").bound(model, ids, Fraction(1)).budgets(state, Fraction(1)), strict=True
    ):
        assert budget == layer.kv_heads * 16
    bound = KVPress("KnormPress").bound(model, ids, Fraction(1, 2))
    for layer, budget in zip(state.layers, bound.budgets(state, Fraction(1, 2)), strict=True):
        kept = bound.compress(layer, budget)
        assert 0 < kept.entries == budget < layer.kv_heads * 16
        assert int(kept.positions[kept.positions >= 0].min()) >= 50 - 16


def test_origins_by_slow_search():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        whole = torch.randn(3, 40, 8, generator=generator).to(dtype)
        index = torch.stack([torch.randperm(40, generator=generator)[:9] for _ in range(3)])
        part = whole.gather(1, index[..., None].expand(-1, -1, 8))
        part[1, 4, 2] += 1
        expected = [
            [next((j for j in range(40) if torch.equal(whole[h, j], vector)), -1) for vector in part[h]]
            for h in range(3)
        ]
        assert origins(part, whole).tolist() == expected
        assert expected[1][4] == -1


@pytest.mark.parametrize(
    ("press", "reason"),
    [
        ("Snap", "unknown press 'Snap'"),
        ("SnapKVPres", "Did you mean 'SnapKVPress'"),
        ("SnapKVPress(", "is no press"),
        ("SnapKVPress(width=3)", "is no press"),
        ("__import__('os').getcwd()", "is no press"),
        ("pipeline()", "unknown press"),
        ("DecodingPress(KnormPress())", "cannot be a method"),
        ("KeyRerotationPress(KnormPress())", "cannot be a method"),
        ("ComposedPress([KnormPress(), TOVAPress()])", "cannot be a method"),
    ],
)
def test_what_is_no_press_is_told_in_one_line(press, reason):
    with pytest.raises(UserError, match="press") as error:
        KVPress(press)
    assert reason in str(error.value) and "\n" not in str(error.value)


# our methods in kvpress's pipeline


METHODS = [SelKV(recent=4), SelKV(recent=4, reposition=True), SelKV(routing="literal"), method_named("lookm")]


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral_window", "gemma2", "phi3"])
@pytest.mark.parametrize("method", METHODS, ids=["selkv", "reposition", "literal", "lookm"])
def test_our_press_equals_our_own_loop(method, family):
    pipe = piped(family)
    press = SelKVPress(compression_ratio=0.7, method=method)
    got = pipe(CONTEXT, questions=QUESTIONS, press=press, max_new_tokens=NEW)["answers"]
    assert got == own_answers(family, method, Fraction(3, 10))
    # an answer is forgotten before the next question
    assert got[1] == pipe(CONTEXT, question=QUESTIONS[1], press=press, max_new_tokens=NEW)["answer"]


def test_our_press_at_ratio_0_is_the_pipeline_without_a_press():
    plain = piped()(CONTEXT, questions=QUESTIONS, max_new_tokens=NEW)
    assert piped()(CONTEXT, questions=QUESTIONS, press=SelKVPress(), max_new_tokens=NEW) == plain
    assert piped()(CONTEXT, questions=QUESTIONS, press=SelKVPress(0.8), max_new_tokens=NEW) != plain


def test_our_press_around_stock_generation():
    model = build("llama", "sdpa")
    model.generation_config.eos_token_id = None
    ids = tokens(60)
    with SelKVPress(0.75)(model):
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
    state = prefill(model, ids)
    cache, _ = compressed_cache([Job(SelKV(), Fraction(1, 4))], state, NEW)
    assert out[0, 60:].tolist() == greedy(model, cache, state.logits, NEW, Stop())[0]


@pytest.mark.parametrize("family", ["llama", "llama_mha", "qwen2", "qwen3", "phi3", "mistral"])
def test_values_press_keeps_what_selkv_keeps(family):
    ids, method = tokens(60), SelKV(recent=4, alpha=0)
    model, cache = build(family, "sdpa"), DynamicCache()
    with torch.no_grad(), SelKVValuesPress(0.7, method)(model):
        model.model(ids, past_key_values=cache)
    for stored, layer in zip(cache.layers, prefill(build(family), ids, method.needs(60, 18)).layers, strict=True):
        kept = method.compress(layer, 18 * layer.kv_heads)
        assert kept.counters["routed"] > 0
        torch.testing.assert_close(stored.keys[0], kept.keys, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(stored.values[0], kept.values, rtol=1e-4, atol=1e-4)


def test_values_press_is_selkv_without_its_bias():
    method = SelKV(recent=4, alpha=0)
    got = piped()(CONTEXT, questions=QUESTIONS, press=SelKVValuesPress(0.7, method), max_new_tokens=NEW)
    assert got["answers"] == own_answers("llama", method, Fraction(3, 10))
    assert got["answers"] != own_answers("llama", dataclasses.replace(method, merge=False), Fraction(3, 10))


def test_values_press_refuses_what_keys_and_values_cannot_hold():
    for method in (SelKV(), SelKV(alpha=0, reposition=True)):
        with pytest.raises(UserError, match="use SelKVPress"):
            SelKVValuesPress(0.5, method)


@pytest.mark.parametrize("press", [SelKVPress, SelKVValuesPress])
@pytest.mark.parametrize("removed", [1, 2, -0.1, "x", None])
def test_presses_refuse_what_is_no_ratio(press, removed):
    with pytest.raises(UserError, match=r"compression_ratio=.*share of entries removed"):
        press(removed)


def test_presses_refuse_what_is_no_method():
    mistakes = {
        "'snapkv'": lambda: SelKVPress(0.5, "snapk"),
        "method=5": lambda: SelKVPress(0.5, 5),
        "selkv.SelKV()": lambda: SelKVPress(0.5, SelKV),
        "SelKV object": lambda: SelKVValuesPress(0.5, "selkv"),
        "sliding_layers 'all'": lambda: SelKVPress(0.5, sliding_layers="all"),
    }
    for expected, mistake in mistakes.items():
        with pytest.raises(UserError, match=re.escape(expected)):
            mistake()


def test_ratio_meanings():
    assert [kept_share(r) for r in (0, 0.75, 0.9, 0.1)] == [1, Fraction(1, 4), Fraction(1, 10), Fraction(9, 10)]
    assert press_of("KnormPress", Fraction(1, 4)).compression_ratio == 0.75
    for removed in (1, -0.1):
        with pytest.raises(UserError, match="ratio="):
            kept_share(removed)


def test_documented_line_for_the_evaluation_script(tmp_path):
    """The script of a checkout reads a registry beside it; here a small one of the same interface stands for it."""
    (tmp_path / "evaluate_registry.py").write_text("PRESS_REGISTRY = {}\n")
    (tmp_path / "evaluate.py").write_text(
        "import sys\nfrom evaluate_registry import PRESS_REGISTRY\n"
        "if __name__ == '__main__':\n    press = PRESS_REGISTRY[sys.argv[2]]\n"
        "    press.compression_ratio = float(sys.argv[4])\n    print(type(press).__name__, press.compression_ratio)\n"
    )
    line = (
        "import runpy, evaluate_registry, selkv.kvpress;"
        "evaluate_registry.PRESS_REGISTRY['selkv'] = selkv.kvpress.SelKVPress();"
        "runpy.run_path('evaluate.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", line, "--press_name", "selkv", "--compression_ratio", "0.75"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["SelKVPress", "0.75"]
