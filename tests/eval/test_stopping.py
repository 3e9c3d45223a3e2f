"""When a generation ends: every source of stop ids, and the newline of samsum alone."""

from transformers import GenerationConfig

from eval.sample import TaskPrompt
from eval.stopping import newline_id, stop_ids, stopping
from eval.tasks import TASKS
from tests.eval.test_prompts import byte_level


def test_stop_ids_are_a_union() -> None:
    tokenizer = byte_level(True)
    eos = tokenizer.eos_token_id
    assert stop_ids(tokenizer, GenerationConfig(eos_token_id=7), chat=True) == {eos, 7}
    assert stop_ids(tokenizer, GenerationConfig(eos_token_id=[7, 9]), chat=False) == {eos, 7, 9}
    assert stop_ids(tokenizer, None, chat=True) == stop_ids(tokenizer, GenerationConfig(), chat=True) == {eos}
    tokenizer.add_special_tokens({"additional_special_tokens": ["<end_of_turn>", "<|eot_id|>"]})
    tokenizer.add_tokens(["<|im_end|>"])  # in the vocabulary, but plain text
    ends = {tokenizer.convert_tokens_to_ids(token) for token in ("<end_of_turn>", "<|eot_id|>")}
    assert stop_ids(tokenizer, None, chat=True) == {eos} | ends
    assert stop_ids(tokenizer, None, chat=False) == {eos}


def test_only_samsum_stops_at_a_newline_and_never_at_once() -> None:
    tokenizer = byte_level(True)
    newline = tokenizer.encode("\n", add_special_tokens=False)[-1]
    assert newline_id(tokenizer) == newline
    for task in TASKS.values():
        prompt = TaskPrompt("{context}", task.max_new_tokens, task.chat, task.stop_at_newline)
        rule = stopping(tokenizer, None, prompt, chat=True)
        assert (newline in rule.ids, rule.min_new_tokens) == ((True, 1) if task.name == "samsum" else (False, 0))
