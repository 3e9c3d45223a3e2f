"""`selkv.compress` with stock `generate` equals the project's own loop: in batches, with beams, sampled, streamed."""

import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from transformers import TextStreamer, pipeline

import selkv
from selkv.compression import Job, compressed_cache
from selkv.decode import Stop, greedy
from selkv.errors import UserError
from selkv.generation import generate
from selkv.prefill import forward, prefill
from selkv.selkv import SelKV
from tests.models import FAMILIES, build, tokens
from tests.tokenizer import end_early, words

N, NEW = 48, 8
RATIO = "0.4"


def endless(family="llama", **changes):
    model = build(family, **changes)
    model.generation_config.eos_token_id = None
    return model


def own(model, ids, count=NEW, method=None):
    """The project's own greedy loop."""
    state = prefill(model, ids)
    cache, _ = compressed_cache([Job(method or SelKV(), Fraction(RATIO))], state, count)
    return greedy(model, cache, state.logits, count, Stop())[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_stock_generation_equals_own_loop(family):
    model, ids = endless(family), tokens(N)
    inputs = selkv.compress(model, ids, ratio=RATIO)
    assert inputs["input_ids"].shape == inputs["attention_mask"].shape == (1, N + 1)
    expected = own(model, ids)
    # a generated token as pad token must not shift positions
    out = model.generate(**inputs, max_new_tokens=NEW - 1, do_sample=False, pad_token_id=expected[0])
    assert out[0, N:].tolist() == expected


@pytest.mark.parametrize("family", ["llama", "mistral_window", "gemma2"])
def test_padded_rows_equal_rows_alone(family):
    model = endless(family)
    prompts = [tokens(n, seed=n)[0] for n in (40, 23, 31)]
    ids, mask = torch.zeros(3, 44, dtype=torch.long), torch.zeros(3, 44, dtype=torch.long)
    for i, prompt in enumerate(prompts):  # four columns are padding in every row
        ids[i, -len(prompt) :], mask[i, -len(prompt) :] = prompt, 1
    out = model.generate(
        **selkv.compress(model, ids, ratio=RATIO, attention_mask=mask), max_new_tokens=NEW - 1, do_sample=False
    )
    assert [row.tolist() for row in out[:, 44:]] == [own(model, prompt) for prompt in prompts]


@pytest.mark.parametrize("seed", range(4))
def test_sampling_equals_a_loop_with_the_same_draws(seed):
    model, ids = endless(), tokens(N)
    options = {"do_sample": True, "temperature": 1.5, "top_k": 10, "top_p": 0.97}
    torch.manual_seed(seed)
    got = generate(model, ids, ratio=RATIO, max_new_tokens=NEW, **options)[0, N:].tolist()

    torch.manual_seed(seed)
    state = prefill(model, ids)
    cache, _ = compressed_cache([Job(SelKV(), Fraction(RATIO))], state, NEW)
    logits, expected = state.logits[None], []
    for step in range(NEW):
        scores = logits / 1.5
        scores[scores < scores.topk(10).values[:, -1:]] = -torch.inf
        order = scores.argsort(dim=-1)  # ascending: the least likely ones are cut while their sum is at most 1 - top_p
        cut = scores.gather(1, order).softmax(-1).cumsum(-1) <= 1 - 0.97
        scores[0, order[cut]] = -torch.inf
        expected.append(int(torch.multinomial(scores.softmax(-1), 1)))
        logits = forward(model, torch.tensor([[expected[-1]]]), cache, torch.tensor([[N + step]]))[:, -1]
    assert got == expected
    assert got != own(model, ids)


def test_beams_of_the_full_cache_equal_stock_beams():
    model, ids = endless(), tokens(N)
    inputs = selkv.compress(model, ids, method="full", ratio=1)
    out = model.generate(**inputs, num_beams=3, max_new_tokens=NEW, do_sample=False)
    stock = endless(attention="eager")
    prompt = inputs["input_ids"]
    expected = stock.generate(
        prompt, attention_mask=torch.ones_like(prompt), num_beams=3, max_new_tokens=NEW, do_sample=False
    )
    assert out.tolist() == expected.tolist()


def test_beam_scores_are_those_of_their_texts():
    model = endless()
    ids = torch.cat([tokens(N), tokens(N, seed=1)])
    out = model.generate(
        **selkv.compress(model, ids, ratio=RATIO), num_beams=4, num_return_sequences=2, max_new_tokens=NEW,
        do_sample=False, length_penalty=0.0, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    for i, (text, score) in enumerate(zip(out.sequences, out.sequences_scores, strict=True)):
        inputs = selkv.compress(model, ids[i // 2], ratio=RATIO, question=text[N:])
        cache = next(v for k, v in inputs.items() if k not in ("input_ids", "attention_mask"))
        logits = forward(model, text[None, N:], cache, torch.arange(N, len(text))[None], logits_to_keep=NEW + 1)
        expected = logits[0, :-1].detach().log_softmax(-1).gather(1, text[N + 1 :, None]).sum()
        assert score == pytest.approx(float(expected), abs=1e-4)
    assert len({tuple(text) for text in out.sequences.tolist()}) == 4


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_question_after_compression(family):
    model, context, question = endless(family), tokens(N), tokens(5, seed=9)
    out = model.generate(
        **selkv.compress(model, context, ratio=RATIO, question=question[0]), max_new_tokens=NEW, do_sample=False
    )
    cache, _ = compressed_cache([Job(SelKV(), Fraction(RATIO))], prefill(model, context), 5 + NEW)
    for token in question[0]:  # one at a time, unlike `generate`
        logits = forward(model, token.reshape(1, 1), cache, torch.tensor([[cache.get_seq_length()]]))[0, -1]
    cache.lengths = torch.tensor([cache.get_seq_length()])
    assert out[0, N + 5 :].tolist() == greedy(model, cache, logits, NEW, Stop())[0]


def test_streamer_gets_the_first_token(capsys):
    model, ids, tokenizer = endless(), tokens(N), words()
    out = generate(model, ids, ratio=RATIO, max_new_tokens=NEW, streamer=TextStreamer(tokenizer, skip_prompt=True))
    assert capsys.readouterr().out.strip() == tokenizer.decode(out[0, N:])


def test_first_token_may_end_the_text(capsys):
    model = endless()
    prompts = torch.cat([tokens(N), tokens(N, seed=1)])
    texts = [own(model, prompt) for prompt in prompts]
    end = texts[0][0]
    assert end not in texts[1]
    model.generation_config.eos_token_id = end
    streamer = TextStreamer(words(), skip_prompt=True)
    assert generate(model, prompts[0], ratio=RATIO, streamer=streamer)[0, N:].tolist() == [end]
    assert capsys.readouterr().out.strip() == f"w{end}"
    out = generate(model, prompts, ratio=RATIO, max_new_tokens=NEW, pad_token_id=0)
    assert out[:, N:].tolist() == [[end] + [0] * (NEW - 1), texts[1]]


@pytest.mark.parametrize("ending", [True, False])
def test_chat_with_the_full_cache_equals_generation_from_all_ids(ending):
    model, stock, tokenizer = build("llama"), build("llama", attention="eager"), words()
    if ending:
        opening = tokenizer("<system> w9 w8 </s> <user> w7 w30 w31 w32 </s> <assistant>", return_tensors="pt")[
            "input_ids"
        ]
        place, _ = (end_early(each, opening) for each in (model, stock))
    chat = selkv.Chat(model, tokenizer, "full", 1, system="w9 w8")
    ids = torch.empty(1, 0, dtype=torch.long)
    for turn in ("w7 w30 w31 w32", "w40 w41", "w50"):
        answer = chat.ask(turn, max_new_tokens=NEW, do_sample=False)
        known = chat.inputs["input_ids"]
        start = int((known[0] == 5).nonzero()[-1]) + 1  # after the last <assistant>
        prompt = known[:, :start]
        assert prompt[0, : ids.shape[1]].tolist() == ids[0].tolist()
        ids = stock.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW, do_sample=False)
        assert known.tolist() == ids.tolist()
        assert answer == tokenizer.decode(ids[0, start:], skip_special_tokens=True)
        if ending and turn.startswith("w7"):
            assert known[0, start:].tolist().index(2) == place
    text = tokenizer.decode(ids[0])
    assert text.startswith("<system> w9 w8 </s> <user> w7 w30 w31 w32 </s> <assistant>")
    assert "</s> <user> w40 w41 </s> <assistant>" in text and "</s> </s>" not in text


def test_chat_keeps_the_compressed_cache():
    model = endless()
    chat = selkv.Chat(model, words(), ratio="0.25")
    chat.ask(" ".join(f"w{i}" for i in range(10, 60)), max_new_tokens=4)
    chat.ask("w7", max_new_tokens=4)
    n = 50 + 3  # <user> text </s> <assistant>
    layer = next(v for k, v in chat.inputs.items() if k not in ("input_ids", "attention_mask")).layers[0]
    assert layer.kept == n // 4
    assert layer.used == layer.kept + chat.inputs["input_ids"].shape[1] - 1 - n


def test_pipeline():
    model, tokenizer = endless(), words()
    stock = pipeline("text-generation", model=endless(attention="eager"), tokenizer=tokenizer)
    texts = [" ".join(f"w{i}" for i in range(6, n)) for n in (60, 40, 52)]
    options = {"max_new_tokens": NEW, "do_sample": False, "return_full_text": False}
    whole = selkv.SelKVPipeline(model=model, tokenizer=tokenizer, method="full", ratio=1)
    assert whole(texts, **options) == stock(texts, **options)
    ours = pipeline(
        "text-generation", model=model, tokenizer=tokenizer, pipeline_class=selkv.SelKVPipeline, ratio=RATIO
    )
    alone = ours(texts, **options)
    assert ours(texts, batch_size=3, **options) == alone
    assert alone != stock(texts, **options)
    chat = ours([{"role": "user", "content": texts[0]}], max_new_tokens=NEW, do_sample=False)
    assert chat[0]["generated_text"][-1]["role"] == "assistant"


@pytest.mark.parametrize("name", ["snapkv", "streamingllm", "h2o", "lookm"])
def test_methods_by_name(name):
    model, ids = endless(), tokens(N)
    out = model.generate(**selkv.compress(model, ids, name, RATIO), max_new_tokens=NEW - 1, do_sample=False)
    assert out[0, N:].tolist() == greedy_with_needs(model, ids, selkv.method_named(name))


def greedy_with_needs(model, ids, method):
    state = prefill(model, ids, method.needs(N, N))
    cache, _ = compressed_cache([Job(method, Fraction(RATIO))], state, NEW)
    return greedy(model, cache, state.logits, NEW, Stop())[0]


def test_native_decoding():
    model, ids = endless(), tokens(N)
    method = selkv.method_named("streamingllm", decode="native")
    inputs = selkv.compress(model, ids, method, RATIO)
    assert model.generate(**inputs, max_new_tokens=3, do_sample=False).shape == (1, N + 4)
    assert inputs["input_ids"].shape[1] == N + 1


def test_mistakes_are_told_in_one_line():
    model, ids = endless(), tokens(N)
    native = selkv.method_named("streamingllm", decode="native")
    right = torch.tensor([[1] * (N - 1) + [0]])
    cases = {
        "selkv.prepare": lambda: selkv.compress(build("llama", attention="sdpa"), ids),
        "Did you mean 'snapkv'": lambda: selkv.compress(model, ids, "snapk"),
        "ratio=1.5": lambda: selkv.compress(model, ids, ratio=1.5),
        "pad on the left": lambda: selkv.compress(model, ids, attention_mask=right),
        "one row": lambda: selkv.compress(model, torch.cat([ids, ids]), native),
        "num_return_sequences": lambda: model.generate(
            **selkv.compress(model, ids, native), num_beams=2, max_new_tokens=2
        ),
        "hyperparameter of method selkv 'alfa'": lambda: selkv.method_named("selkv", alfa=1),
        "alpha=-1": lambda: selkv.method_named("selkv", alpha=-1),
    }
    for expected, mistake in cases.items():
        with pytest.raises(UserError) as error:
            mistake()
        assert expected in str(error.value) and "\n" not in str(error.value)


def test_importing_the_library_is_light():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['hydra', 'omegaconf', 'pandas', 'datasets']));"  # not importable
        "import selkv; print('torch' in sys.modules, 'yaml' in sys.modules);"
        "selkv.compress, selkv.generate, selkv.Chat, selkv.SelKV, selkv.method_named('snapkv')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="public names: compress"):
        _ = selkv.compres
