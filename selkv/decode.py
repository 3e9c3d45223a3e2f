"""Greedy decoding of a ragged batch: one step for all rows, rows that finish leave the batch."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selkv.cache import CompressedCache
from selkv.prefill import forward


class Stop(NamedTuple):
    """When a row ends.

    Attributes
    ----------
    ids : collection of int
        Token ids that end the text; they are not part of it.
    min_new_tokens : int
        Tokens that must come before one of them may be chosen (LongBench asks one of samsum).
    """

    ids: Collection[int] = ()
    min_new_tokens: int = 0


def choose(logits: Tensor, stop: Stop, generated: int) -> Tensor:
    """Greedy choice, stop ids ruled out while too little has been generated; (B, V) to (B,). Ties: lower id."""
    if generated < stop.min_new_tokens:
        logits = logits.clone()
        logits[:, sorted(stop.ids)] = float("-inf")
    return logits.argmax(-1)


@torch.no_grad()
def ask(model: Any, cache: CompressedCache, question: Sequence[int]) -> Tensor:
    """Feed a question after compression, to every row at once; logits (B, V) of the first generated token."""
    ids = torch.tensor(question, device=model.device).expand(len(cache.lengths), -1)
    positions = cache.lengths.to(ids.device)[:, None] + torch.arange(ids.shape[1], device=ids.device)
    cache.lengths = cache.lengths + ids.shape[1]
    return forward(model, ids, cache, positions)[:, -1]


@torch.no_grad()
def greedy(model: Any, cache: CompressedCache, logits: Tensor, max_new_tokens: int, stop: Stop) -> list[list[int]]:
    """Continue every row of a cache greedily.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    cache : CompressedCache
        Its rows are consumed.
    logits : Tensor, (V,) or (B, V)
        Of the first token, from the prefill: they come from the full cache.
    max_new_tokens : int
        Limit, the first token included.
    stop : Stop

    Returns
    -------
    list of list of int
        Generated ids of each row, without the stop token.
    """
    device = model.device
    ends = torch.tensor(sorted(stop.ids), device=device, dtype=torch.long)
    token = choose(logits.to(device).expand(len(cache.lengths), -1), stop, 0)
    rows = torch.arange(len(token), device=device)  # which text each row of the cache continues
    texts = torch.full((len(token), max_new_tokens), -1, device=device)
    texts[:, 0] = token
    done = torch.isin(token, ends)
    positions = cache.lengths.to(device)
    for step in range(1, max_new_tokens):
        finished = int(done.sum())  # the only wait for the device in a step
        if finished == len(done):
            break
        if finished * 4 >= len(done):  # moving the rest costs about a step, so not for every row that ends
            alive = (~done).nonzero()[:, 0]
            cache.select(alive)
            rows, token, positions, done = rows[alive], token[alive], positions[alive], done[alive]
        token = choose(forward(model, token[:, None], cache, positions[:, None])[:, -1], stop, step)
        positions = positions + 1
        texts[rows, step] = token.where(~done, -1)
        done = done | torch.isin(token, ends)
    return [_cut(text, stop) for text in texts.tolist()]


def _cut(text: list[int], stop: Stop) -> list[int]:
    """The ids before the first stop token."""
    end = next((i for i, token in enumerate(text) if token < 0 or token in stop.ids), len(text))
    return text[:end]
