"""The cache layer of prefill: keeps K and V, the last queries, and what methods need of the others."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from selkv.attention import BLOCK_LOGITS, Constants, carry, causal_attention
from selkv.state import LayerState, Needs
from selkv.window import attention_logits, visible


class RecordingLayer(DynamicLayer):
    """Full-length layer of one prompt of known length that also records queries and attention sums.

    Parameters
    ----------
    needs : Needs
    length : int
        Prompt tokens n; buffers are sized once, also when the prompt comes in chunks.
    """

    keys: Tensor
    values: Tensor
    queries: Tensor | None
    constants: Constants

    def __init__(self, needs: Needs, length: int) -> None:
        super().__init__()
        self.needs, self.length, self.seen = needs, length, 0
        self.queries = None
        self.mass: Tensor | None = None
        self.blocks: dict[int, Tensor] = {}

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (1, Hkv, q, d); returns all keys and values so far, the keys with a reference to this layer."""
        stop = self.seen + key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            if stop < self.length:
                self.keys = key_states.new_empty(*key_states.shape[:2], self.length, key_states.shape[3])
                self.values = value_states.new_empty(*value_states.shape[:2], self.length, value_states.shape[3])
            else:
                self.keys, self.values = key_states, value_states
        if self.keys is not key_states:
            self.keys[:, :, self.seen : stop] = key_states
            self.values[:, :, self.seen : stop] = value_states
        self.seen = stop
        return carry(self.keys[:, :, :stop], self), self.values[:, :, :stop]

    def rewind(self, tokens: int, needs: Needs) -> None:
        """Forget the last tokens, so that a second pass can run them again (the paper's procedure)."""
        self.seen -= tokens
        self.queries, self.needs = None, needs

    def get_seq_length(self) -> int:
        """Tokens seen."""
        return self.seen

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        """Not used by our mask function; total length and offset 0."""
        return self.length, 0

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, constants: Constants, _: Tensor | None = None
    ) -> Tensor:
        """Record, then causal attention; (1, H, q, d)."""
        self.constants = constants
        known = query[0] if self.queries is None else torch.cat([self.queries, query[0]], 1)
        self.queries = known[:, -self.needs.window :].clone() if self.needs.window else known[:, :0].clone()
        if self.needs.column_mass or self.needs.blocks:
            self._accumulate(query[0], key[0])
        return causal_attention(query, key, value, constants)

    def _accumulate(self, query: Tensor, key: Tensor) -> None:
        """Column sums and block-diagonal attention of all queries, in query blocks: O(block * n) memory."""
        heads, count, total = query.shape[0], query.shape[1], key.shape[1]
        scale, softcap, window = self.constants
        entries = min(self.length, window or self.length)
        hidden = self.length - entries  # keys that will have left the window when the prompt ends
        if self.mass is None:
            self.mass = torch.zeros(heads, self.length, device=key.device)
            self.blocks = {b: torch.zeros(heads, entries, b, device=key.device) for b in self.needs.blocks}
        block = max(1, min(count, BLOCK_LOGITS // (heads * total)))
        for start in range(0, count, block):
            rows = torch.arange(start, min(start + block, count), device=key.device) + (total - count)
            low = 0 if window is None else max(0, int(rows[0]) - window + 1)
            high = int(rows[-1]) + 1
            logits = attention_logits(query[:, start : start + len(rows)], key[:, low:high], scale, softcap)
            columns = torch.arange(low, high, device=key.device)
            attention = logits.masked_fill_(~visible(rows, columns, window), float("-inf")).softmax(-1)
            if self.needs.column_mass:
                self.mass[:, low:high] += attention.sum(1)
            self._store_blocks(attention, rows, low, hidden)

    def _store_blocks(self, attention: Tensor, rows: Tensor, low: int, hidden: int) -> None:
        """Attention of the query rows on the entries of their own bucket; `attention` starts at column `low`."""
        inside = rows >= hidden
        entry = rows[inside] - hidden
        for size, stored in self.blocks.items():
            column = (entry // size * size)[:, None] + torch.arange(size, device=rows.device) + hidden - low
            valid = (column >= 0) & (column < attention.shape[2])
            picked = attention[:, inside].gather(
                2, column.clamp(0, attention.shape[2] - 1).expand(len(attention), -1, -1)
            )
            stored[:, entry] = picked * valid

    def state(self, layer: int, layers: int, inv_freq: Tensor | None) -> LayerState:
        """What methods see of this layer once the whole prompt has passed."""
        scale, softcap, window = self.constants
        entries = min(self.length, window or self.length)
        first = self.length - entries
        queries = self.keys[0, :, :0] if self.queries is None else self.queries
        reach = max(0, first - self.needs.window + 1)  # oldest key that a window query still saw
        keys, values = self.keys[0, :, first:], self.values[0, :, first:]
        if first:  # the copy lets go of what the window has left behind
            keys, values = keys.clone(), values.clone()
        return LayerState(
            keys=keys,
            values=values,
            queries=queries,
            positions=torch.arange(first, self.length, device=self.keys.device),
            scale=scale,
            softcap=softcap,
            sliding_window=window,
            inv_freq=None if inv_freq is None else inv_freq.to(self.keys.device),
            layer=layer,
            layers=layers,
            column_mass=self.mass[:, first:] if self.needs.column_mass and self.mass is not None else None,
            block_attention=self.blocks,
            hidden_keys=self.keys[0, :, reach:first].clone() if first > reach else None,
        )
