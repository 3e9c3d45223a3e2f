"""Native decoding: a layer whose method keeps evicting or merging while it generates, one row, one token at a time."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from selkv.attention import Constants, carry
from selkv.cache import follows
from selkv.errors import UserError
from selkv.method import NativeMethod
from selkv.state import LayerState
from selkv.window import attention_logits, visible


class NativeLayer(DynamicLayer):
    """One layer of one row under `decode=native`.

    Parameters
    ----------
    method : NativeMethod
    layer : LayerState
        The layer after prefill.
    budget : int
        Entries, summed over the KV heads.
    length : int
        Prompt tokens: the next token has this position.
    """

    mask = None
    is_croppable = False
    keys: Tensor
    values: Tensor

    def __init__(self, method: NativeMethod, layer: LayerState, budget: int, length: int) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self.method, self.state = method, method.start(layer, budget)
        self.seen = self.position = length  # apart where `generate` counts padding, too
        self.keys, self.values = self.state.kept.keys, self.state.kept.values

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Hand the new keys and values (1, Hkv, q, d) to `attend`."""
        if len(key_states) > 1:
            raise UserError("decode=native serves one row: no beam search, num_return_sequences=1")
        return carry(key_states.view_as(key_states), self), value_states

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, constants: Constants, positions: Tensor | None = None
    ) -> Tensor:
        """Attend and step, token by token (a native method's cache changes with each); (1, H, q, d)."""
        if positions is not None:
            follows(positions, self.position + torch.arange(query.shape[2], device=positions.device))
        tokens = [self._step(query[0, :, i], key[0, :, i], value[0, :, i], constants) for i in range(query.shape[2])]
        self.keys, self.values = self.state.kept.keys, self.state.kept.values
        return torch.stack(tokens, 1)[None]

    def _step(self, query: Tensor, key: Tensor, value: Tensor, constants: Constants) -> Tensor:
        kept = self.state.kept
        keys = torch.cat([kept.keys, key[:, None]], 1)  # (Hkv, m + 1, d)
        values = torch.cat([kept.values, value[:, None]], 1)
        positions = torch.nn.functional.pad(kept.positions, (0, 1), value=self.position)
        hidden = ~visible(torch.full_like(positions[:, :1], self.position), positions, constants.sliding_window)[:, 0]
        chosen = self.method.select(self.state, query, key)
        hidden = hidden if chosen is None else hidden | ~chosen
        bias = torch.nn.functional.pad(kept.bias, (0, 1)).masked_fill(hidden, float("-inf"))
        logits = attention_logits(query[:, None], keys, constants.scale, constants.softcap)[:, 0]  # (H, m + 1)
        row = (logits.unflatten(0, (len(keys), -1)) + bias[:, None]).softmax(-1)  # (Hkv, G, m + 1)
        out = row.to(values.dtype) @ values
        self.state = self.method.step(self.state, query, key, value, row.flatten(0, 1))
        self.seen, self.position = self.seen + 1, self.position + 1
        return out.flatten(0, 1)

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to forget tokens: the entries that they evicted or merged are gone."""
        if tokens_to_remove < 0 or 0 < tokens_to_remove < self.seen:  # older transformers give the length that remains
            raise UserError("decode=native cannot take tokens back: no assisted generation or prompt lookup")

    def get_seq_length(self) -> int:
        """Logical length."""
        return self.seen

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        """Not used by our mask function; logical length and offset 0."""
        return self.seen, 0

    def select(self, index: Tensor) -> None:
        """One row only: nothing to select."""
