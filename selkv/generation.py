"""Prompt in, text out: `selkv.compress` and stock ``model.generate`` in one call, no token treated apart."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer

from selkv.api import First, compress, highest
from selkv.checks import prepared, token_ids
from selkv.errors import UserError
from selkv.method import Method
from selkv.values import whole_number


def generate(
    model: Any,
    input_ids: Tensor,
    method: str | Method = "selkv",
    ratio: float | str | Fraction = 0.25,
    *,
    attention_mask: Tensor | None = None,
    question: Tensor | None = None,
    sliding_layers: str = "compress",
    chunk: int | None = None,
    max_new_tokens: int | None = None,
    streamer: BaseStreamer | None = None,
    **options: Any,
) -> Tensor:
    """Generate after compressing the prompts.

    Unlike ``model.generate(**compress(...))`` the first token is sampled, streamed, counted and checked for the end of
    the text like the others. Beam search starts after it.

    Parameters
    ----------
    model, input_ids, method, ratio, attention_mask, question, sliding_layers, chunk
        As for `selkv.compress`.
    max_new_tokens : int, optional
        Tokens to generate, the first one included; by default up to ``max_length``, the generation config's, or 256.
    streamer : BaseStreamer, optional
        E.g. ``TextStreamer(tokenizer, skip_prompt=True)``.
    **options
        Passed to ``model.generate``.

    Returns
    -------
    Tensor, (B, n + new) or (B, n + q + new)
        Prompts and what follows them, as ``model.generate`` returns it.
    """
    prepared(model)
    refuse(options)
    texts = {"input_ids": input_ids, "question": question}
    known = sum(token_ids(name, ids).shape[1] for name, ids in texts.items() if ids is not None)
    count = new_tokens(model, known, max_new_tokens, options)
    inputs = compress(
        model,
        input_ids,
        method,
        ratio,
        attention_mask=attention_mask,
        question=question,
        first=chooser(model, options),
        sliding_layers=sliding_layers,
        chunk=chunk,
        room=count,
    )
    if question is not None:
        return model.generate(**inputs, max_new_tokens=count, streamer=streamer, **options)
    return resume(model, inputs, count, streamer, **options)


def resume(
    model: Any,
    inputs: Mapping[str, Any],
    max_new_tokens: int | None = None,
    streamer: BaseStreamer | None = None,
    **options: Any,
) -> Tensor:
    """Go on from what `selkv.compress` returned, whose last ids are the first ones of the text; as `generate`."""
    refuse(options)
    ids = inputs["input_ids"]
    count = new_tokens(model, ids.shape[1] - 1, max_new_tokens, options)
    ends = _ids(model, options, "eos_token_id")
    ended = torch.isin(ids[:, -1], torch.tensor(ends, device=ids.device, dtype=ids.dtype))
    streamer = None if streamer is None else FirstTokenApart(streamer)
    if bool(ended.all()) or count == 1:
        if streamer is not None:
            streamer.put(ids.cpu())
            streamer.end()
        return ids
    out = model.generate(**inputs, max_new_tokens=count - 1, streamer=streamer, **options)
    padding = [*_ids(model, options, "pad_token_id"), *ends, 0][0]
    out[ended.repeat_interleave(len(out) // len(ids)), ids.shape[1] :] = padding
    return out


# Options of ``model.generate`` that ask for another cache or another result than ours, and their values that do not.
FIXED: dict[str, tuple[object, ...]] = {
    "use_cache": (None, True),
    "cache_implementation": (None,),
    "return_dict_in_generate": (None, False),
    "cache": (),
    "past_key_values": (),
    "inputs_embeds": (),
}


def refuse(options: Mapping[str, Any], fixed: Mapping[str, tuple[object, ...]] = FIXED) -> None:
    """Raise UserError for the first of the options whose value is not among those it is fixed to."""
    if getattr(options.get("generation_config"), "return_dict_in_generate", False):
        options = {**options, "return_dict_in_generate": True}
    for name, allowed in fixed.items():
        if name in options and not any(options[name] is value for value in allowed):
            raise UserError(f"{name} cannot be set with a compressed cache, which is made here and gives ids; drop it")


def new_tokens(model: Any, known: int, given: int | None, options: Mapping[str, Any]) -> int:
    """Tokens to generate after `known` ones: as given, by the option ``max_length``, the generation config, or 256."""
    if given is None and options.get("max_length") is not None:
        whole_number("max_length", options["max_length"], known + 1)
        return options["max_length"] - known
    value = _option(model, options, "max_new_tokens", 256) if given is None else given
    return whole_number("max_new_tokens", value, 1)


def chooser(model: Any, options: Mapping[str, Any]) -> First:
    """How ``model.generate`` with these options would choose the first token: greedy, or sampled after its warpers."""
    if not _option(model, options, "do_sample", False):
        return highest
    # the defaults are those of transformers
    top_k, top_p = _option(model, options, "top_k", 50), _option(model, options, "top_p", 1.0)
    warpers = LogitsProcessorList()
    try:
        warpers.append(TemperatureLogitsWarper(float(_option(model, options, "temperature", 1.0))))
        if top_k:
            warpers.append(TopKLogitsWarper(top_k))
        if top_p < 1:
            warpers.append(TopPLogitsWarper(top_p))
    except ValueError as problem:
        raise UserError(" ".join(str(problem).split())) from None

    def sample(logits: Tensor) -> Tensor:
        ids = torch.LongTensor(len(logits), 0)  # the warpers do not look at them
        return torch.multinomial(warpers(ids, logits.float()).softmax(-1), 1)[:, 0]

    return sample


class FirstTokenApart(BaseStreamer):
    """Hands a streamer the prompt and the first token apart, as generation without compression does."""

    def __init__(self, streamer: BaseStreamer) -> None:
        self.streamer, self.started = streamer, False

    def put(self, value: Tensor) -> None:
        """Pass on ids (1, n + 1) at the first call, (1,) later."""
        if self.started:
            self.streamer.put(value)
            return
        self.started = True
        self.streamer.put(value[:, :-1])
        self.streamer.put(value[:, -1])

    def end(self) -> None:
        """Pass on the end."""
        self.streamer.end()


def _option(model: Any, options: Mapping[str, Any], name: str, default: Any) -> Any:
    """Option of ``model.generate``: given, in the generation config that is given, in the model's, or the default."""
    configs = [options.get("generation_config"), model.generation_config]
    given = [options.get(name), *(getattr(config, name, None) for config in configs)]
    return next((value for value in given if value is not None), default)


def _ids(model: Any, options: Mapping[str, Any], name: str) -> list[int]:
    """Token ids of an option that may be one, several or none."""
    value = _option(model, options, name, [])
    return list(value) if isinstance(value, list | tuple) else [int(value)]
