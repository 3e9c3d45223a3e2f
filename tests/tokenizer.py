"""A word-level tokenizer for the tiny models of `tests.models`: token i is the word ``w<i>``."""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} </s> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def words(vocabulary: int = 128) -> PreTrainedTokenizerFast:
    """Tokenizer with pad 0, bos 1, eos 2, the roles of a chat at 3 to 5, and words from 6 on."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<pad>", "<s>", "</s>", "<system>", "<user>", "<assistant>"]
    names = [*special, *(f"w{i}" for i in range(len(special), vocabulary))]
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.model_max_length = 4096
    return tokenizer


@torch.no_grad()
def end_early(model: Any, ids: Tensor) -> int:
    """Exchange two rows of the output layer, so that the model's answer to ids (1, n) ends with </s>; returns where."""
    options = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False}
    answer = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()
    place = next(i for i in range(1, 8) if answer[i] not in answer[:i])
    weight = model.lm_head.weight
    weight[[2, answer[place]]] = weight[[answer[place], 2]]
    return place
