"""lm-eval's Hugging Face model with a compressed cache: the prompt is prefilled, compressed, then continued."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils_hf import stop_sequences_criteria
from torch import Tensor
from tqdm import tqdm

from selkv.budget import kept_per_head, parse_ratio
from selkv.checks import sliding
from selkv.compression import Job, compressed_cache, is_native, native_cache
from selkv.errors import UserError
from selkv.generation import generate
from selkv.load import prepare
from selkv.named import method_named
from selkv.prefill import Prefill, forward, prefill

Request = tuple[tuple[str, str], list[int], list[int]]
"""Texts of context and continuation (a key of lm-eval's), and their ids."""


@register_model("selkv")
class SelKVLM(HFLM):
    """``--model selkv``: the options of lm-eval's ``hf``, and these.

    Parameters
    ----------
    pretrained : str or transformers.PreTrainedModel
    method : str
        Name of a method (a file of ``configs/method``); ``method.<hyperparameter>=value`` sets its hyperparameters.
    ratio : float or str
        Fraction of the prompt's entries that is kept.
    sliding_layers : str
        ``compress`` or ``keep`` layers that see a sliding window.
    **options
        Of lm-eval's ``hf`` model.
    """

    def __init__(
        self,
        pretrained: Any,
        method: str = "selkv",
        ratio: float | str | Fraction = 0.25,
        sliding_layers: str = "compress",
        **options: Any,
    ) -> None:
        own = {key: options.pop(key) for key in list(options) if key.startswith("method.")}
        self.method = method_named(method, **{key.removeprefix("method."): value for key, value in own.items()})
        self.ratio, self.sliding_layers = parse_ratio(ratio), sliding(sliding_layers)
        super().__init__(pretrained, **options)
        prepare(self.model)

    def _model_generate(
        self, context: Tensor, max_length: int, stop: list[str], attention_mask: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Generate after left-padded prompts (B, n); lm-eval's temperature 0 means greedy."""
        temperature = options.pop("temperature", 0.0)
        if options.setdefault("do_sample", temperature > 0):
            options["temperature"] = temperature
        return generate(
            self.model,
            context,
            self.method,
            self.ratio,
            attention_mask=attention_mask,
            sliding_layers=self.sliding_layers,
            max_new_tokens=max_length - context.shape[1],
            stopping_criteria=stop_sequences_criteria(self.tokenizer, stop, context.shape[1], context.shape[0]),
            pad_token_id=self.tokenizer.pad_token_id,
            **options,
        )

    def _loglikelihood_tokens(
        self, requests: Sequence[Request], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """Log-likelihood of continuations after compressed contexts; one prefill for all continuations of a context.

        The last token of a context is fed after compression, so that a continuation of one token is scored by the
        compressed cache, too.
        """
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, (_, context, continuation) in enumerate(requests):
            room = self.max_length + 1 - len(continuation)  # the last token of a continuation is not fed
            groups.setdefault(tuple(context[-room:]), []).append(i)
        answers: list[tuple[float, bool]] = [(0.0, False)] * len(requests)
        for context, members in tqdm(groups.items(), "Contexts", disable=disable_tqdm or self.rank != 0):
            job, state = self._prefilled(torch.tensor(context[:-1] or context, device=self.device))
            for i in members:
                answers[i] = self._score(job, state, context[state.n :], requests[i][2])
                self.cache_hook.add_partial("loglikelihood", requests[i][0], answers[i])
        return answers

    def _prefilled(self, prefix: Tensor) -> tuple[Job, Prefill]:
        needs = self.method.needs(len(prefix), kept_per_head(len(prefix), self.ratio))
        state = prefill(self.model, prefix, needs)
        return Job(self.method.bound(self.model, prefix, self.ratio), self.ratio), state

    @torch.no_grad()
    def _score(self, job: Job, state: Prefill, rest: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Sum of log-probabilities, and whether each token is the likeliest; `rest` ends the context."""
        fed = torch.tensor([[*rest, *continuation[:-1]]], device=self.device)
        logits = state.logits[None]
        if fed.shape[1]:
            cache, _ = (
                native_cache(job, state, self.sliding_layers)
                if is_native(job.method)
                else compressed_cache([job], state, fed.shape[1], self.sliding_layers)
            )
            positions = state.n + torch.arange(fed.shape[1], device=self.device)[None]
            logits = torch.cat([logits, forward(self.model, fed, cache, positions, fed.shape[1])[0]])
        target = torch.tensor(continuation, device=logits.device)
        logits = logits[-len(target) :].float()
        likelihood = logits.log_softmax(-1).gather(1, target[:, None]).sum()
        return float(likelihood), bool((logits.argmax(-1) == target).all())

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """Refused: a whole text has no prompt that could be compressed before it is scored."""
        raise UserError(
            "tasks of type loglikelihood_rolling (perplexity of whole texts) have no prompt to compress; choose "
            "generate_until, loglikelihood or multiple_choice tasks, or --model hf"
        )
