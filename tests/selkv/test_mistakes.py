"""Mistakes with the library are told in one line, and none of them gives another text in silence."""

import copy

import pytest
import torch
from transformers import GenerationConfig

import selkv
from selkv.errors import UserError
from tests.models import FAMILIES, build, tokens
from tests.tokenizer import words

N = 48


@pytest.fixture(scope="module")
def model():
    model = build("llama")
    model.generation_config.eos_token_id = None
    return model


def refused(expected, mistake):
    with pytest.raises(UserError) as error:
        mistake()
    assert expected in str(error.value) and "\n" not in str(error.value)


IDS, TWO = tokens(N), torch.cat([tokens(N), tokens(N, seed=1)])
ONES = torch.ones_like(IDS)


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("input_ids is a BatchEncoding", {"input_ids": words()("w7 w8", return_tensors="pt")}),
        ("input_ids is a dict", {"input_ids": {"input_ids": IDS}}),
        ("input_ids is a str", {"input_ids": "a prompt"}),
        ("input_ids is a list", {"input_ids": [[4, 5]]}),
        ("shape (1, 0)", {"input_ids": IDS[:, :0]}),
        ("shape (0, 48)", {"input_ids": IDS[:0]}),
        ("shape (1, 1, 48)", {"input_ids": IDS[None]}),
        ("shape ()", {"input_ids": IDS[0, 0]}),
        ("torch.float32", {"input_ids": IDS.float()}),
        ("torch.bool", {"input_ids": IDS.bool()}),
        ("id 128, and the model's vocabulary ends at 127", {"input_ids": torch.tensor([5, 128])}),
        ("id -1", {"input_ids": torch.tensor([5, -1])}),
        ("e.g. selkv.SelKV()", {"method": selkv.SelKV}),
        ("e.g. selkv.SelKV()", {"method": None}),
        ("attention_mask is (2, 48), and input_ids (1, 48)", {"attention_mask": torch.cat([ONES, ONES])}),
        ("attention_mask is (40,)", {"attention_mask": ONES[0, :40]}),
        ("attention_mask is list", {"attention_mask": ONES.tolist()}),
        ("1 on tokens and 0 on padding", {"attention_mask": ONES * 2}),
        ("pad on the left", {"attention_mask": ONES * 0}),
        ("question is a str", {"question": "who?"}),
        ("question of shape (1, 1, 48)", {"question": IDS[None]}),
        ("question of shape (1, 0)", {"question": IDS[:, :0]}),
        ("question of shape (1, 48) and torch.float32", {"question": IDS.float()}),
        ("question has 2 rows", {"question": TWO}),
        ("question has id 999", {"question": torch.tensor([999])}),
        ("unknown sliding_layers 'all'", {"sliding_layers": "all"}),
        ("ratio=25%", {"ratio": "25%"}),
        ("chunk=0", {"chunk": 0}),
        ("chunk='8'", {"chunk": "8"}),
    ],
)
def test_arguments(model, expected, changes):
    arguments = {"model": model, "input_ids": IDS, **changes}
    refused(expected, lambda: selkv.compress(**arguments))
    refused(expected, lambda: selkv.generate(**arguments))


def test_padding_may_lie_outside_the_vocabulary(model):
    padded = torch.cat([torch.full((1, 3), 128), IDS], 1)
    inputs = selkv.compress(model, padded, attention_mask=(padded < 128).int())
    out = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    alone = model.generate(**selkv.compress(model, IDS), max_new_tokens=3, do_sample=False)
    assert out[0, 3:].tolist() == alone[0].tolist()


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("max_new_tokens=0", {"max_new_tokens": 0}),
        ("max_new_tokens=-3", {"max_new_tokens": -3}),
        ("max_new_tokens=2.5", {"max_new_tokens": 2.5}),
        ("max_new_tokens='8'", {"max_new_tokens": "8"}),
        ("use_cache", {"use_cache": False}),
        ("cache_implementation", {"cache_implementation": "static"}),
        ("return_dict_in_generate", {"return_dict_in_generate": True}),
        ("return_dict_in_generate", {"generation_config": GenerationConfig(return_dict_in_generate=True)}),
        ("past_key_values", {"past_key_values": None}),
        ("`temperature` (=0.0)", {"do_sample": True, "temperature": 0}),
        ("`top_k`", {"do_sample": True, "top_k": -1}),
    ],
)
def test_options_of_generation(model, expected, options):
    chat = selkv.Chat(model, words())
    pipe = selkv.SelKVPipeline(model=model, tokenizer=words())
    refused(expected, lambda: selkv.generate(model, IDS, **options))
    refused(expected, lambda: chat.ask("w7 w8", **options))
    if not {"past_key_values", "return_dict_in_generate", "generation_config"} & set(options):  # the stock pipeline's
        refused(expected, lambda: pipe("w7 w8", **options))


def test_length_includes_the_prompt(model):
    assert selkv.generate(model, IDS, max_length=N + 3).shape == (1, N + 3)
    assert selkv.generate(model, IDS, question=IDS[:, :4], max_length=N + 7).shape == (1, N + 7)
    refused("max_length=48 is not a whole number of at least 49", lambda: selkv.generate(model, IDS, max_length=N))


@pytest.mark.parametrize("count", [1, 2, 5, 60])
@pytest.mark.parametrize("question", [None, IDS[0, :4]])
def test_a_used_cache(model, count, question):
    inputs = selkv.compress(model, IDS, question=question)
    kept = copy.deepcopy(inputs)
    text = model.generate(**inputs, max_new_tokens=count, do_sample=False)
    refused("copy.deepcopy(inputs)", lambda: model.generate(**inputs, max_new_tokens=count))
    assert model.generate(**kept, max_new_tokens=count, do_sample=False).tolist() == text.tolist()


def test_a_used_native_cache(model):
    inputs = selkv.compress(model, IDS, selkv.method_named("streamingllm", decode="native"))
    model.generate(**inputs, max_new_tokens=2)
    refused("has served a call", lambda: model.generate(**inputs))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["selkv", selkv.method_named("streamingllm", decode="native")])
def test_tokens_that_do_not_follow(family, method):
    model = build(family)
    model.generation_config.eos_token_id = None
    inputs = dict(selkv.compress(model, IDS, method))
    refused("position", lambda: model.generate(**inputs, use_cache=False, max_new_tokens=2))
    inputs = dict(selkv.compress(model, IDS, method))
    inputs |= {"input_ids": IDS, "attention_mask": ONES}  # nothing new
    with pytest.raises((UserError, IndexError)):  # older transformers fail before they ask the model
        model.generate(**inputs, max_new_tokens=2)


def test_turns_by_hand(model):
    inputs = dict(selkv.compress(model, IDS, "full", 1))
    text = torch.cat([model.generate(**inputs, max_new_tokens=3, do_sample=False), tokens(4, seed=5)], 1)
    inputs |= {"input_ids": text, "attention_mask": torch.ones_like(text)}
    out = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert out.tolist() == model.generate(text, max_new_tokens=3, do_sample=False).tolist()


def test_assisted_generation_is_right_or_refused(model):
    ids = tokens(20).repeat(1, 3)
    plain = selkv.generate(model, ids, max_new_tokens=8)
    try:
        assisted = selkv.generate(model, ids, max_new_tokens=8, assistant_model=build("llama", num_hidden_layers=2))
    except UserError as error:
        assert "assisted" in str(error)
    else:
        assert assisted.tolist() == plain.tolist()


def test_caches_of_others(model):
    inputs = dict(selkv.compress(model, IDS))
    refused("its own model", lambda: build("llama_mha").generate(**inputs, max_new_tokens=2))
    refused("torch.bfloat16", lambda: build("llama", dtype=torch.bfloat16).generate(**inputs, max_new_tokens=2))
    layer = selkv.compress(model, IDS).cache.layers[0]
    refused("type='meta'", lambda: layer.update(torch.zeros(1, 2, 1, 8, device="meta"), torch.zeros(1, 2, 1, 8)))
    refused(
        "given (3, 2, 8,",
        lambda: selkv.compress(model, TWO).cache.layers[0].update(*torch.zeros(2, 3, 2, 1, 8)),
    )
    other = build("llama", attention="sdpa")
    refused("attention has changed", lambda: other.generate(**selkv.compress(model, IDS), max_new_tokens=3))


def test_native_decoding_takes_nothing_back(model):
    layer = selkv.compress(model, IDS, selkv.method_named("streamingllm", decode="native")).cache.layers[0]
    layer.crop(0)
    layer.crop(N)
    refused("take tokens back", lambda: layer.crop(-1))
    refused("take tokens back", lambda: layer.crop(N - 1))


@pytest.mark.parametrize("build_it", [selkv.Chat, lambda m, t, *a, **o: selkv.SelKVPipeline(model=m, tokenizer=t, **o)])
def test_construction(model, build_it):
    refused("ratio=3", lambda: build_it(model, words(), ratio=3))
    refused("selkv.SelKV()", lambda: build_it(model, words(), method=selkv.SelKV))
    refused("selkv.prepare", lambda: build_it(build("llama", attention="sdpa"), words()))


def test_another_method_for_one_call(model):
    pipe = selkv.SelKVPipeline(model=model, tokenizer=words())
    text = " ".join(f"w{i}" for i in range(10, 60))
    options = {"max_new_tokens": 8, "do_sample": False}
    other = selkv.SelKVPipeline(model=model, tokenizer=words(), method="streamingllm", ratio=0.5)
    assert pipe(text, method="streamingllm", ratio=0.5, **options) == other(text, **options) != pipe(text, **options)
    refused("ratio=2", lambda: pipe(text, ratio=2, **options))


def test_chat(model):
    chat = selkv.Chat(model, words())
    refused("no chat template", lambda: selkv.Chat(model, None))
    refused("not int", lambda: chat.ask(5))
    refused("num_beams", lambda: chat.ask("w7", num_beams=2))
    refused("num_return_sequences", lambda: chat.ask("w7", num_return_sequences=2))
    chat.ask("w7 w8 w9", max_new_tokens=2)
    chat.ask("w7", max_new_tokens=2)
    refused("max_new_tokens=0", lambda: chat.ask("w7", max_new_tokens=0))
    assert chat.inputs["input_ids"].shape[1] < 40
