"""Accumulated scores (heavy hitters): one-shot selection, and eviction of one entry per generated token."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from selkv.method import NativeMethod
from selkv.scores import group_reduce, keep_best, last, protect, top
from selkv.state import Kept, LayerState, take
from selkv.values import Count, Reduction


class Running(NamedTuple):
    """Scores carried along while decoding.

    Attributes
    ----------
    kept : Kept
    scores : Tensor, (Hkv, m), float32
        Accumulated score of each kept entry; what an evicted entry had is gone.
    recent : int
        Last entries that are never evicted.
    last : int
        Position of the newest token.
    """

    kept: Kept
    scores: Tensor
    recent: int
    last: int


def append(kept: Kept, key: Tensor, value: Tensor, position: int) -> Kept:
    """Add the entry of one token, key and value (Hkv, d), at the end."""
    return kept._replace(
        keys=torch.cat([kept.keys, key[:, None]], 1),
        values=torch.cat([kept.values, value[:, None]], 1),
        bias=F.pad(kept.bias, (0, 1)),
        positions=F.pad(kept.positions, (0, 1), value=position),
    )


def narrow(kept: Kept, index: Tensor) -> Kept:
    """Keep some of the entries, by their index (Hkv, m)."""
    keys, values, bias, positions = (take(x, index) for x in kept[:4])
    return kept._replace(keys=keys, values=values, bias=bias, positions=positions)


@dataclass(frozen=True)
class HeavyHitterMethod(NativeMethod):
    """Base of the methods that keep recent entries and those with the largest accumulated score.

    Attributes
    ----------
    recent : int or None
        Last entries that always stay; None: half of the budget.
    reduce : str
        From query heads to their KV head: ``mean``, ``max`` or ``sum``.
    decode : str
        ``native`` drops one entry a head for each generated token, whose attention is added to the scores.
    """

    recent: Count | None = None
    reduce: Reduction = "mean"

    @abstractmethod
    def scores(self, layer: LayerState, kept: int) -> Tensor:
        """Scores (Hkv, n) after prefill, inf where protected, when `kept` entries stay in a head."""

    def gain(self, attention: Tensor, values: Tensor) -> Tensor:
        """What a token's attention (Hkv, m) adds to the scores of the entries with these values (Hkv, m, d)."""
        return attention

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Recent entries and the best of the others."""
        return self._select(layer, budget)[0]

    def start(self, layer: LayerState, budget: int) -> Running:
        """Compressed prompt with the scores of what is kept."""
        kept, scores = self._select(layer, budget)
        index = (kept.positions - layer.positions[0]).clamp(min=0)
        recent = self.protected(budget // layer.kv_heads)
        return Running(kept, take(scores, index), recent, int(layer.positions[-1]))

    def step(self, state: Running, query: Tensor, key: Tensor, value: Tensor, attention_row: Tensor) -> Running:
        """Append the token, add its attention to the scores, drop the lowest one outside the recent entries."""
        kept = append(state.kept, key, value, state.last + 1)
        attention = group_reduce(attention_row, len(key), self.reduce)
        scores = F.pad(state.scores, (0, 1)) + self.gain(attention, kept.values)
        entries = scores.shape[1]
        index = top(protect(scores, last(entries, state.recent, scores.device)), entries - 1)
        return Running(narrow(kept, index), take(scores, index), state.recent, state.last + 1)

    def protected(self, kept: int) -> int:
        """Number of recent entries among `kept`."""
        return kept // 2 if self.recent is None else min(self.recent, kept)

    def _select(self, layer: LayerState, budget: int) -> tuple[Kept, Tensor]:
        kept = budget // layer.kv_heads
        scores = self.scores(layer, kept)
        return keep_best(layer, protect(scores, last(layer.n, self.protected(kept), scores.device)), budget), scores
