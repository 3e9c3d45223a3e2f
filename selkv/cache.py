"""The cache of decoding: compressed layers of several rows in one ragged batch, in buffers that are sized once.

Rows may come from different prompts, methods and ratios; layers and heads may keep different numbers of entries: a bias
of -inf pads them. The logical length (positions, what `generate()` sees) is apart from the physical one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from selkv.attention import Constants, carry, masked_attention
from selkv.buffers import buffers, moved_up
from selkv.errors import UserError
from selkv.state import Kept
from selkv.window import visible


class CompressedLayer(DynamicLayer):
    """One layer of a ragged batch: kept entries, then the tokens generated since.

    Parameters
    ----------
    rows : sequence of Kept
        What each row keeps.
    lengths : Tensor, (B,), int64
        Prompt tokens of each row: its next token has this position.
    room : int
        Tokens that will be appended; more makes the buffers grow.
    memory : list of Tensor, optional
        Of earlier layers whose rows are done; see `selkv.buffers`.

    Attributes
    ----------
    keys, values : Tensor, (B, Hkv, m + room, d)
    mask : Tensor or None, (B, Hkv, 1, m + room)
        The bias and the padding, zero on what is generated; None where no row has either.
    positions : Tensor, (B, Hkv, m + room)
        -1 on padding; those of tokens yet to come are there from the start.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, rows: Sequence[Kept], lengths: Tensor, room: int, memory: list[Tensor] | None = None) -> None:
        super().__init__()
        widest = max(row.keys.shape[1] for row in rows)
        first = rows[0].keys
        shape = (len(rows), first.shape[0], widest + room)
        self.lazy_initialization(first, first)
        self.keys, self.values = buffers(first, (*shape, first.shape[2]), memory)
        self.positions = torch.full(shape, -1, device=first.device)
        mask = torch.zeros(shape, device=first.device)
        mask[:, :, :widest] = float("-inf")
        for i, row in enumerate(rows):
            m = row.keys.shape[1]
            self.keys[i, :, :m], self.values[i, :, :m] = row.keys, row.values
            self.keys[i, :, m:widest], self.values[i, :, m:widest] = 0, 0  # hidden by the mask, but 0 * nan is nan
            self.positions[i, :, :m], mask[i, :, :m] = row.positions, row.bias
        self.mask = mask[:, :, None].to(first.dtype) if bool(mask.any()) else None
        self.kept, self.used = widest, widest
        self.lengths = lengths.to(first.device)
        self.seen = int(lengths.max())
        self.attended = True
        self._number()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (B, Hkv, q, d); returns what is in use, the keys with a reference to this layer."""
        count = key_states.shape[2]
        self._refuse_others(key_states)
        self.attended = False
        if len(key_states) != len(self.keys):  # `generate` repeats the ids of each row for its beams, not the cache
            self.batch_repeat_interleave(len(key_states) // len(self.keys))
        stop = self.used + count
        if stop > self.keys.shape[2]:
            self._grow(stop)
        self.keys[:, :, self.used : stop], self.values[:, :, self.used : stop] = key_states, value_states
        self.used, self.seen = stop, self.seen + count
        return carry(self.keys[:, :, :stop], self), self.values[:, :, :stop]

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, constants: Constants, positions: Tensor | None = None
    ) -> Tensor:
        """Attention of the last q tokens, at these positions (B, q), on the entries and on each other; (B, H, q, d)."""
        count, self.attended = query.shape[2], True
        if positions is not None and (count > 1 or self.used == self.kept + 1):  # one token at a time follows by itself
            follows(positions, self.positions[:, 0, self.used - count : self.used])
        mask = None if self.mask is None else self.mask[..., : self.used]
        if constants.sliding_window is None and count > 1:
            mask = followed(query, key, mask)
        elif constants.sliding_window is not None and (count > 1 or self.seen > constants.sliding_window):
            asked = self.positions[:, :1, self.used - count : self.used]
            seen = visible(asked, self.positions[:, :, : self.used], constants.sliding_window)
            mask = torch.zeros((), device=key.device) if mask is None else mask
            mask = torch.where(seen, mask, float("-inf"))
        return masked_attention(query, key, value, constants, mask)

    def get_seq_length(self) -> int:
        """Logical length: prompt and generated tokens of the longest row."""
        return self.seen

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        """Not used by our mask function; logical length and offset 0."""
        return self.seen, 0

    def select(self, index: Tensor) -> None:
        """Keep only these rows, in this order (rows that finish leave the batch; beams are reordered)."""
        self.keys, self.values = moved_up(self.keys, index), moved_up(self.values, index)
        self.positions, self.lengths = self.positions[index], self.lengths[index]
        self.mask = None if self.mask is None else self.mask[index]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder rows for beam search."""
        self.select(beam_idx.to(self.keys.device))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row, as `generate` does for beams."""
        self.select(torch.arange(len(self.keys), device=self.keys.device).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows."""
        self.select(indices)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens generated, a negative number (in older transformers, the length that remains)."""
        count = -tokens_to_remove if tokens_to_remove <= 0 else max(0, self.seen - tokens_to_remove)
        if count > self.used - self.kept:
            raise UserError(f"cannot forget {count} tokens: {self.used - self.kept} came after compression")
        self.used, self.seen = self.used - count, self.seen - count

    def _refuse_others(self, key_states: Tensor) -> None:
        """Raise UserError for keys of another model, type, place, batch (beams multiply its rows) or attention."""
        if not self.attended:
            raise UserError(
                "the model's attention has changed since selkv.compress; call selkv.prepare(model) and compress again"
            )
        made, given = ((len(k), k.shape[1], k.shape[3], k.dtype, k.device) for k in (self.keys, key_states))
        if made[1:] != given[1:] or given[0] % made[0]:
            raise UserError(
                f"a compressed cache of {made} (rows, KV heads, head size, dtype, device) was given {given}; use it "
                "with its own model and prompts, as they were, or compress again"
            )

    def _grow(self, needed: int) -> None:
        """Enlarge the buffers by a quarter (only `generate()` and chats, whose length is not known before)."""
        extra = max(needed - self.keys.shape[2], self.keys.shape[2] // 4, 64)
        pad = torch.nn.functional.pad
        self.keys, self.values = pad(self.keys, (0, 0, 0, extra)), pad(self.values, (0, 0, 0, extra))
        self.positions = pad(self.positions, (0, extra))
        self.mask = None if self.mask is None else pad(self.mask, (0, extra))
        self._number()

    def _number(self) -> None:
        """Positions of the tokens to come: they follow the prompt, so that a step need not write them."""
        room = torch.arange(self.positions.shape[2] - self.kept, device=self.positions.device)
        self.positions[:, :, self.kept :] = (self.lengths[:, None] + room)[:, None]


def follows(positions: Tensor, expected: Tensor) -> None:
    """Raise UserError unless tokens at these positions (B, q) are the ones that a cache expects next."""
    if not bool((positions == expected).all()):
        raise UserError(
            f"tokens at position {int(positions.min())} were given to a compressed cache that goes on at position "
            f"{int(expected.min())}; give generate the ids that selkv.compress returned and the cache once, without "
            "use_cache=False, prefill_chunk_size or (in this transformers) assisted generation"
        )


def followed(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Mask of tokens that follow every entry and come one after the other, query heads folded.

    Parameters
    ----------
    query : Tensor, (B, H, q, d)
    key : Tensor, (B, Hkv, L, d)
        The last q are the queries' own.
    mask : Tensor, (B, Hkv, 1, L), optional

    Returns
    -------
    Tensor, (B or 1, Hkv or 1, G*q, L)
    """
    count, group = query.shape[2], query.shape[1] // key.shape[1]
    mask = key.new_zeros(1, 1, 1, key.shape[2]) if mask is None else mask
    every = mask[:, :, None].expand(-1, -1, group, count, -1).contiguous()
    every[..., -count:] += key.new_full((count, count), float("-inf")).triu(1)
    return every.flatten(2, 3)


class CompressedCache(Cache):
    """Cache of compressed layers for one or several rows.

    Parameters
    ----------
    layers : list
        `CompressedLayer` or `selkv.native.NativeLayer`, one a model layer.
    lengths : Tensor, (B,), int64
        Prompt tokens of each row.
    """

    layers: list[Any]

    def __init__(self, layers: list[Any], lengths: Tensor) -> None:
        super().__init__(layers=layers)
        self.lengths = lengths

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and masks, room included."""
        tensors = (t for layer in self.layers for t in (layer.keys, layer.values, layer.mask) if t is not None)
        return sum(t.nbytes for t in tensors)

    def select(self, index: Tensor) -> None:
        """Keep only these rows in every layer."""
        for layer in self.layers:
            layer.select(index)
        self.lengths = self.lengths[index.to(self.lengths.device)]
