"""Greedy decoding of a ragged batch: one step for all rows, rows that finish leave the batch."""

from collections.abc import Collection
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
    newline_ids : collection of int
        Ids that also end it once at least one token has been generated (LongBench's samsum rule).
    """

    ids: Collection[int] = ()
    newline_ids: Collection[int] = ()


@torch.no_grad()
def greedy(model: Any, cache: CompressedCache, first: Tensor, max_new_tokens: int, stop: Stop) -> list[list[int]]:
    """Continue every row of a cache greedily.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    cache : CompressedCache
        Its rows are consumed.
    first : Tensor, (B,), int64
        First generated token of each row, from the prefill's logits.
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
    later_ends = torch.tensor(sorted({*stop.ids, *stop.newline_ids}), device=device, dtype=torch.long)
    token = first.to(device)
    rows = torch.arange(len(token), device=device)  # which text each row of the cache continues
    texts = torch.full((len(token), max_new_tokens), -1, device=device)
    texts[:, 0] = token
    done = torch.isin(token, ends)
    positions = cache.lengths.to(device)
    for step in range(1, max_new_tokens):
        if bool(done.all()):
            break
        if int(done.sum()) * 4 >= len(done):  # moving the rest costs about a step, so not for every row that ends
            alive = (~done).nonzero()[:, 0]
            cache.select(alive)
            rows, token, positions, done = rows[alive], token[alive], positions[alive], done[alive]
        logits = forward(model, token[:, None], cache, positions[:, None])
        token = logits[:, -1].argmax(-1)
        positions = positions + 1
        texts[rows[~done], step] = token[~done]
        done = done | torch.isin(token, later_ends)
    return [_cut(text, stop) for text in texts.tolist()]


def _cut(text: list[int], stop: Stop) -> list[int]:
    """The ids before the first stop token."""
    for i, token in enumerate(text):
        if token < 0 or token in stop.ids or (i > 0 and token in stop.newline_ids):
            return text[:i]
    return text
