"""The library's front door: compress prompts and hand the result to stock ``model.generate(**inputs)``."""

from collections import UserDict
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from selkv.budget import kept_per_head
from selkv.cache import CompressedCache, CompressedLayer
from selkv.checks import known, padding, prepared, sliding, token_ids
from selkv.compression import Job, compressed_layers, is_native, job_of, native_cache
from selkv.errors import UserError
from selkv.method import Method
from selkv.prefill import Prefill, cache_argument, prefill
from selkv.state import Kept, LayerState
from selkv.values import whole_number

First = Callable[[Tensor], Tensor]
"""Chooses the first token of every row: logits (B, V) to ids (B,)."""


def highest(logits: Tensor) -> Tensor:
    """Greedy choice; ties: lower id."""
    return logits.argmax(-1)


class Inputs(UserDict[str, Any]):
    """What `compress` returns. It unpacks (``**inputs``) until its cache has been used: after that, `generate` would go
    on from the end of another text and say nothing.
    """

    def __init__(self, inputs: Mapping[str, Any], cache: CompressedCache) -> None:
        super().__init__(inputs)
        self.cache, self.start = cache, cache.get_seq_length()

    def keys(self) -> KeysView[str]:
        """Names, for unpacking; UserError once the cache has been used."""
        if self.cache.get_seq_length() != self.start:
            raise UserError(
                "this compressed cache has served a call of generate; call selkv.compress again, copy.deepcopy(inputs) "
                "before each call, or hold a conversation with selkv.Chat"
            )
        return super().keys()


@torch.no_grad()
def compress(
    model: Any,
    input_ids: Tensor,
    method: str | Method = "selkv",
    ratio: float | str | Fraction = 0.25,
    *,
    attention_mask: Tensor | None = None,
    question: Tensor | None = None,
    first: First = highest,
    sliding_layers: str = "compress",
    chunk: int | None = None,
    room: int = 256,
) -> Inputs:
    """Prefill prompts, compress their caches, and return what ``model.generate(**inputs)`` needs to go on.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        From `selkv.load_model`, or any loaded model after `selkv.prepare(model)`.
    input_ids : Tensor, (n,) or (B, n), int64
        Prompts; shorter ones are padded on the left. Every row is prefilled alone, without its padding.
    method : str or Method
        A method, or the name of one with its defaults (a file of ``configs/method``).
    ratio : float, str or Fraction
        Fraction of the entries that is kept, in (0, 1]; read as the decimal that it prints as.
    attention_mask : Tensor, (B, n), optional
        0 on padding; without it nothing is padding.
    question : Tensor, (q,) or (B, q), int64, optional
        Ids that follow a compressed context: `generate` feeds them instead of a first token. Of one length in a batch.
    first : callable
        Chooses the first token from the logits of the full cache, (B, V) to (B,); greedy by default.
    sliding_layers : str
        ``compress`` or ``keep`` layers that see a sliding window.
    chunk : int, optional
        Tokens a forward pass of prefill; bounds memory on long prompts.
    room : int
        Tokens that the buffers have room for before they must grow.

    Returns
    -------
    Inputs
        A mapping: ``input_ids`` and ``attention_mask``, (B, n + 1) or (B, n + q), and the cache under the name that
        this version of transformers gives it. A cache serves one call of `generate`.

    Raises
    ------
    UserError
        For an unprepared model, an unknown method, a ratio outside (0, 1], anything but token ids of its vocabulary,
        padding that is not on the left, several rows under native decoding, or numbers out of range.
    """
    prepared(model)
    job = job_of(method, ratio)
    sliding(sliding_layers)
    whole_number("room", room, 0)
    chunk = None if chunk is None else whole_number("chunk", chunk, 1)
    ids = token_ids("input_ids", input_ids).to(model.device)
    mask = torch.ones_like(ids) if attention_mask is None else padding(attention_mask, ids)
    prompts = [row[seen] for row, seen in zip(ids, mask.bool(), strict=True)]
    asked = None if question is None else _asked(question, ids, model)
    known("input_ids", torch.cat(prompts), model)
    if is_native(job.method):
        cache, logits = _native(model, prompts, job, sliding_layers, chunk)
    else:
        cache, logits = _ragged(model, prompts, job, sliding_layers, chunk, room)
    for layer in cache.layers:  # padding that all rows share counts in what `generate` takes for the cache's length
        layer.seen = ids.shape[1]
    new = first(logits)[:, None] if asked is None else asked
    inputs = {
        "input_ids": torch.cat([ids, new], 1),
        "attention_mask": torch.cat([mask, torch.ones_like(new)], 1),
        cache_argument(model): cache,
    }
    return Inputs(inputs, cache)


def _asked(question: Tensor, ids: Tensor, model: Any) -> Tensor:
    """The question of every row of ids, (B, q)."""
    asked = token_ids("question", question).to(ids)
    known("question", asked, model)
    if len(asked) not in (1, len(ids)):
        raise UserError(f"question has {len(asked)} rows, and input_ids {len(ids)}; give one for all, or one a row")
    return asked.expand(len(ids), -1)


def _prefilled(model: Any, prompt: Tensor, job: Job, chunk: int | None) -> tuple[Job, Prefill]:
    """The job bound to a prompt, and the prompt's prefill with what the method needs."""
    needs = job.method.needs(len(prompt), kept_per_head(len(prompt), job.ratio))
    state = prefill(model, prompt, needs, chunk=chunk)
    return Job(job.method.bound(model, prompt, job.ratio), job.ratio), state


def _native(
    model: Any, prompts: Sequence[Tensor], job: Job, sliding_layers: str, chunk: int | None
) -> tuple[CompressedCache, Tensor]:
    if len(prompts) > 1:
        raise UserError(
            f"decode=native of {type(job.method).__name__} serves one row, not {len(prompts)}; loop over them"
        )
    job, state = _prefilled(model, prompts[0], job, chunk)
    return native_cache(job, state, sliding_layers)[0], state.logits[None]


def _only(step: tuple[LayerState, Sequence[Kept]]) -> Kept:
    """What the only job keeps; a variable of a loop would hold on to the layer."""
    return step[1][0]


def _ragged(
    model: Any, prompts: Sequence[Tensor], job: Job, sliding_layers: str, chunk: int | None, room: int
) -> tuple[CompressedCache, Tensor]:
    """One row a prompt; each is prefilled and compressed before the next one, a single one layer by layer."""
    rows: list[Iterable[Kept]] = []
    logits = []
    for prompt in prompts:
        bound, state = _prefilled(model, prompt, job, chunk)
        kepts = map(_only, compressed_layers([bound], state, sliding_layers, release=True))
        rows.append(kepts if len(prompts) == 1 else list(kepts))
        logits.append(state.logits)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    layers = [CompressedLayer(layer, lengths, room) for layer in zip(*rows, strict=True)]
    return CompressedCache(list(layers), lengths), torch.stack(logits)
