"""When a generation ends: the stop ids of tokenizer, generation config and chat turn, and samsum's newline rule."""

from typing import Any, NamedTuple

from eval.sample import TaskPrompt

# End of a turn in the chat formats of ChatML, Gemma, Llama-3 and Phi-3; counted only where the vocabulary marks
# them as special tokens.
TURN_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|end|>")


class Stopping(NamedTuple):
    """Ids that end a generation, and how many tokens must come before one of them may be chosen."""

    ids: frozenset[int]
    min_new_tokens: int = 0


def stop_ids(tokenizer: Any, generation_config: Any, chat: bool) -> frozenset[int]:
    """Union of all ids that end a generation.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizer
        Its EOS token alone would miss the end of a turn of Gemma and Llama-3.
    generation_config : GenerationConfig or None
        ``eos_token_id`` may be one id, a list or None.
    chat : bool
        Whether the model is used as a chat model; it ends its turn on bare prompts, too.
    """
    ids = {tokenizer.eos_token_id}
    configured = getattr(generation_config, "eos_token_id", None)
    ids |= set(configured) if isinstance(configured, list | tuple) else {configured}
    if chat:
        ids |= {
            index
            for index, token in tokenizer.added_tokens_decoder.items()
            if token.special and str(token) in TURN_ENDS
        }
    return frozenset(index for index in ids if index is not None)


def newline_id(tokenizer: Any) -> int:
    r"""Last id of an encoded ``"\n"``: what LongBench's pred.py stops samsum at.

    A newline inside a merged token does not stop (seen with Llama-3); the scorer's first-line rule covers that.
    """
    return int(tokenizer.encode("\n", add_special_tokens=False)[-1])


def stopping(tokenizer: Any, generation_config: Any, prompt: TaskPrompt, chat: bool) -> Stopping:
    """Stop ids of one task.

    For samsum the newline is added and no stop id may be chosen as the first token: pred.py asks `generate` for
    ``min_length`` = prompt + 1, which sets the logits of all stop ids to -inf there.
    """
    ids = stop_ids(tokenizer, generation_config, chat)
    return Stopping(ids | {newline_id(tokenizer)}, 1) if prompt.stop_at_newline else Stopping(ids)
