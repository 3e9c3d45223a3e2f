"""StreamingLLM: the first tokens (attention sinks) and the most recent ones; no scores."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from selkv.errors import UserError
from selkv.method import NativeMethod
from selkv.rotary import close_gaps
from selkv.scores import keep_best
from selkv.state import Kept, LayerState, Needs
from selkv.values import Count


class Rolling(NamedTuple):
    """Rolling window while decoding.

    Attributes
    ----------
    kept : Kept
        Entries to attend to, re-embedded where that is asked for.
    keys : Tensor, (Hkv, m, d)
        Their keys at their own positions: rotating those afresh each step keeps rounding from piling up.
    last : int
        Position of the newest token.
    inv_freq : Tensor or None
    """

    kept: Kept
    keys: Tensor
    last: int
    inv_freq: Tensor | None


@dataclass(frozen=True)
class StreamingLLM(NativeMethod):
    """StreamingLLM (Xiao et al. 2023, arXiv 2309.17453; mit-han-lab/streaming-llm 2e50426).

    Attributes
    ----------
    sinks : int
        First entries that always stay; a budget that does not exceed them keeps the first ones.
    reembed : bool
        Move the kept keys to consecutive positions, as the authors' cache does; the default keeps their rotations, as
        KVCache-Factory and kvpress do.
    decode : str
        ``native`` rolls the window: each new token drops the oldest entry after the sinks.
    """

    sinks: Count = 4
    reembed: bool = False

    def needs(self, n: int, budget: int) -> Needs:
        """Nothing but positions."""
        return Needs(window=0, rotation=self.reembed)

    def compress(self, layer: LayerState, budget: int) -> Kept:
        """Sinks and recent entries."""
        kept = self._select(layer, budget)
        return kept._replace(keys=self._embed(kept.keys, kept.positions, int(layer.positions[-1]), layer.inv_freq))

    def start(self, layer: LayerState, budget: int) -> Rolling:
        """The compressed prompt."""
        return Rolling(
            self.compress(layer, budget), self._select(layer, budget).keys, int(layer.positions[-1]), layer.inv_freq
        )

    def step(self, state: Rolling, query: Tensor, key: Tensor, value: Tensor, attention_row: Tensor) -> Rolling:
        """Drop the oldest entry after the sinks and append the new one."""
        last = state.last + 1
        sinks = min(self.sinks, state.keys.shape[1] - 1)

        def roll(x: Tensor, new: Tensor) -> Tensor:
            return torch.cat([x[:, :sinks], x[:, sinks + 1 :], new[:, None]], 1)

        keys = roll(state.keys, key)
        positions = roll(state.kept.positions, torch.full_like(state.kept.positions[:, 0], last))
        kept = state.kept._replace(
            keys=self._embed(keys, positions, last, state.inv_freq),
            values=roll(state.kept.values, value),
            positions=positions,
        )
        return Rolling(kept, keys, last, state.inv_freq)

    def _select(self, layer: LayerState, budget: int) -> Kept:
        recency = torch.arange(layer.n, device=layer.keys.device, dtype=torch.float32)
        recency[: self.sinks] = float("inf")
        return keep_best(layer, recency, budget)

    def _embed(self, keys: Tensor, positions: Tensor, last: int, inv_freq: Tensor | None) -> Tensor:
        if not self.reembed:
            return keys
        if inv_freq is None:
            raise UserError("reembed=true of streamingllm needs rotary frequencies that do not depend on the length; "
                            "this model has none such, use reembed=false")  # fmt: skip
        return close_gaps(keys, positions, last, inv_freq)
