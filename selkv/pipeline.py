"""transformers' text-generation pipeline over compressed caches, and chat over several turns on one of them."""

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from transformers import TextGenerationPipeline

from selkv.api import compress
from selkv.checks import prepared
from selkv.compression import job_of
from selkv.errors import UserError
from selkv.generation import FIXED, chooser, generate, new_tokens, refuse, resume
from selkv.method import Method


class SelKVPipeline(TextGenerationPipeline):
    """Text-generation pipeline that compresses every prompt before it generates.

    Use it as ``SelKVPipeline(model=model, tokenizer=tokenizer, method="selkv", ratio=0.25)``, or through
    ``transformers.pipeline("text-generation", ..., pipeline_class=SelKVPipeline, method=..., ratio=...)``. Calls take
    what the stock pipeline's take: texts, chats, ``batch_size``, ``return_full_text``, options of ``generate``; and
    another ``method`` or ``ratio``.

    Parameters
    ----------
    method : str or Method
    ratio : float, str or Fraction
        Fraction of the entries that is kept.
    **options
        Of the stock pipeline; the model must be prepared (`selkv.prepare`).
    """

    def __init__(
        self, *args: Any, method: str | Method = "selkv", ratio: float | str | Fraction = 0.25, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        prepared(self.model)
        self.method, self.ratio = job_of(method, ratio)

    def _forward(self, *inputs: Any, **options: Any) -> Any:
        (tensors,) = inputs  # the base classes do not agree on this argument's name
        ids, prompt = tensors["input_ids"], tensors["prompt_text"]
        options.pop("prefix_length", None)
        job = [options.pop(name, getattr(self, name)) for name in ("method", "ratio")]
        out = generate(self.model, ids, *job, attention_mask=tensors.get("attention_mask"), **options)
        return {
            "generated_sequence": out.reshape(len(ids), -1, out.shape[1]),
            "input_ids": ids,
            "prompt_text": prompt,
        }


class Chat:
    """A conversation whose first, long message is compressed; later turns are added to the cache whole.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Prepared (`selkv.prepare`).
    tokenizer : transformers.PreTrainedTokenizerBase
        With a chat template.
    method : str or Method
    ratio : float, str or Fraction
        Fraction of the first turn's entries that is kept.
    system : str, optional
        System message.
    """

    MARK = "\x1f"  # stands for an answer while the template writes what follows it

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        method: str | Method = "selkv",
        ratio: float | str | Fraction = 0.25,
        system: str | None = None,
    ) -> None:
        prepared(model)
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("the tokenizer has no chat template; use selkv.generate with plain prompts")
        self.model, self.tokenizer = model, tokenizer
        self.method, self.ratio = job_of(method, ratio)
        self.opening = [] if system is None else [{"role": "system", "content": system}]
        self.inputs: dict[str, Any] = {}

    def ask(self, text: str, **options: Any) -> str:
        """Add a user's turn and return the answer.

        Parameters
        ----------
        text : str
        **options
            Passed to ``model.generate`` (``max_new_tokens``, ``do_sample``, ``streamer``, ...).
        """
        if not isinstance(text, str):
            raise UserError(f"a turn of a chat is text, not {type(text).__name__}")
        refuse(options, {**FIXED, "num_beams": (None, 1), "num_return_sequences": (None, 1)})
        turn = {"role": "user", "content": text}
        if self.inputs:
            known = self._follow(turn)
            options["max_new_tokens"] = new_tokens(self.model, known, options.get("max_new_tokens"), options)
            out = self.model.generate(**self.inputs, **options)
        else:
            ids = self._encode(self._template([*self.opening, turn]))
            known = ids.shape[1]
            self.inputs = dict(compress(self.model, ids, self.method, self.ratio, first=chooser(self.model, options)))
            out = resume(self.model, self.inputs, **options)
        self._know(out)
        return self.tokenizer.decode(out[0, known:], skip_special_tokens=True)

    def _follow(self, turn: dict[str, str]) -> int:
        """Add what the template writes between the last answer and the next; returns the number of ids before that."""
        example = [*self.opening, {"role": "user", "content": "?"}, {"role": "assistant", "content": self.MARK}, turn]
        new = self._encode(self._template(example).split(self.MARK, 1)[1])
        ids = self.inputs["input_ids"]
        if ids[0, -1] == new[0, 0]:  # the answer has already ended itself as the template ends it
            new = new[:, 1:]
        self._know(torch.cat([ids, new], 1))
        return ids.shape[1] + new.shape[1]

    def _know(self, ids: Tensor) -> None:
        self.inputs = {**self.inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def _template(self, messages: list[dict[str, str]]) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def _encode(self, text: str) -> Tensor:
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        return ids.to(self.model.device)
