"""RocketKV: SnapKV with a wide pooling kernel after prefill; optionally, each step then reads only its best pages."""

from dataclasses import dataclass
from math import ceil, log2, sqrt
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from selkv.heavyhitter import append
from selkv.method import NativeMethod
from selkv.observation import ObservationMethod
from selkv.scores import mask_of, top, top_mask
from selkv.state import Kept, LayerState
from selkv.values import Portion, Reduction, Width


class Paged(NamedTuple):
    """Entries while decoding: all stay and new ones join; each step reads `reads` of them.

    Attributes
    ----------
    kept : Kept
    last : int
        Position of the newest token.
    reads : int
        Entries attended to a step.
    scale : float
        Factor on the layer's logits.
    """

    kept: Kept
    last: int
    reads: int
    scale: float


@dataclass(frozen=True)
class RocketKV(ObservationMethod, NativeMethod):
    """RocketKV (Behnam et al. 2025, arXiv 2502.14051; NVlabs/RocketKV 63637c8).

    Stage 1 is the one-shot method: entries stay. Stage 2 (``decode=native``) estimates every step's attention from page
    bounds in a few dimensions and attends exactly to the best entries; the bounds count in the budget.

    Attributes
    ----------
    kernel : int
        63 in the code and in the second version of the paper; the first adapted it to the length by an unknown rule.
    reads : float or int
        Stage 2: entries attended to a step, a fraction of the stored ones below 1, or a number.
    compression : float
        Stage 2: how much less than all keys the estimate reads (c2); pages are of ceil(sqrt(c2)) where that is at most
        c2, else of 1.
    decode : str
        ``one_shot`` or ``native``.
    window, pooling, reduce, pool_first
        See `ObservationMethod`.
    """

    kernel: Width = 63
    pooling: Literal["avg", "max"] = "max"
    reduce: Reduction = "sum"
    reads: Annotated[Portion, Field(gt=0)] = 0.5
    compression: Annotated[float, Field(ge=1)] = 1.0

    @property
    def page(self) -> int:
        """Entries a page."""
        page = ceil(sqrt(self.compression))
        return page if page <= self.compression else 1

    def start(self, layer: LayerState, budget: int) -> Paged:
        """Stage 1, with room for the minimum and maximum of each page: they cost as much as one entry."""
        stored = budget
        if self.page > 1:
            stored = max(layer.kv_heads, budget * self.page // (self.page + 1))
        reads = int(self.reads) if self.reads >= 1 else max(1, int(self.reads * stored / layer.kv_heads))
        kept = self.compress(layer, stored)
        return Paged(kept._replace(counters={"reads": float(reads)}), int(layer.positions[-1]), reads, layer.scale)

    def step(self, state: Paged, query: Tensor, key: Tensor, value: Tensor, attention_row: Tensor) -> Paged:
        """Append the token: nothing is evicted."""
        last = state.last + 1
        return state._replace(kept=append(state.kept, key, value, last), last=last)

    def select(self, state: Paged, query: Tensor, key: Tensor) -> Tensor:
        """Entries with the largest estimated attention, the new one among the candidates."""
        keys = torch.cat([state.kept.keys, key[:, None]], 1)
        estimate = self.estimate(query, keys, state.scale, F.pad(state.kept.bias, (0, 1)))
        return top_mask(estimate, min(state.reads, keys.shape[1]))

    def dimensions(self, query: Tensor, kv_heads: int) -> Tensor:
        """Head dimensions with the largest mean |q| of the group, ascending, (Hkv, r)."""
        size = query.unflatten(0, (kv_heads, -1)).float().abs().mean(1)
        return top(size, int(size.shape[1] * self.page / self.compression))

    def estimate(self, query: Tensor, keys: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
        """Approximate attention of one token, mean of the group.

        Parameters
        ----------
        query : Tensor, (H, d)
        keys : Tensor, (Hkv, m, d)
        scale : float
        bias : Tensor, (Hkv, m), optional
            -inf on padding.

        Returns
        -------
        Tensor, (Hkv, m), float32
        """
        kv_heads, entries, _ = keys.shape
        grouped = query.unflatten(0, (kv_heads, -1)).float()  # (Hkv, G, d)
        sign = torch.where(grouped.sum(1) > 0, 1.0, -1.0)[:, None]  # (Hkv, 1, d)
        used = mask_of(self.dimensions(query, kv_heads), keys.shape[2])[:, None]
        # upper bound of the group's q.k in a page: the largest key along the sign of q (Quest's bound)
        padded = F.pad(sign * keys.float(), (0, 0, 0, -entries % self.page), value=float("-inf"))
        bound = padded.unflatten(1, (-1, self.page)).amax(2)  # (Hkv, pages, d)
        logits = (sign * grouped * used) @ bound.transpose(1, 2)  # (Hkv, G, pages)
        # the temperature makes up for the dimensions left out
        part = (grouped.abs() * used).sum(-1, keepdim=True) / grouped.abs().sum(-1, keepdim=True).clamp(min=1e-30)
        logits = logits * scale / part.clamp(min=1e-30).sqrt()
        logits = logits.repeat_interleave(self.page, -1)[..., :entries]
        if bias is not None:
            logits = logits + bias[:, None]
        return logits.softmax(-1).mean(1)


class Split(NamedTuple):
    """How the authors split a token budget.

    Attributes
    ----------
    stored : int
        Prompt entries that stage 1 keeps.
    reads : int
        Entries that stage 2 attends to a step.
    compression : float
        c2 of stage 2.
    """

    stored: int
    reads: int
    compression: float


def authors_split(token_budget: int, length: int, new_tokens: int) -> Split:
    """Split of a token budget as in the authors' accuracy code: to run their settings, not to compare at a ratio.

    Their budget is read traffic, not storage: 512 of 8192 tokens stores 2354 entries.

    Parameters
    ----------
    token_budget : int
    length : int
        Prompt tokens and new tokens together.
    new_tokens : int
    """
    compression = max(1.0, length / token_budget)
    exponent = min(0.2 + 0.06 * log2(compression), 0.8)
    capacity = max(int(length / compression**exponent), min(2 * new_tokens, length))
    return Split(capacity - new_tokens, token_budget // 2, max(1.0, capacity / token_budget))


def authors_pages(split: Split, head_dim: int) -> tuple[int, int]:
    """Page size and number of dimensions in the authors' fast code, which rounds otherwise than `RocketKV`."""
    page = min(int(split.compression), ceil(sqrt(split.compression)))
    return page, round(head_dim * page / split.compression)
