"""The one attention function that models call, and the exact attention behind it.

Registered as ``selkv`` with transformers; no model class is patched. A cache layer of ours returns keys that carry a
reference to that layer, and the layer attends: prefill records, decode adds the bias.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from selkv.window import cap, visible

NAME = "selkv"

# Logits computed at once where a mask or a soft-cap rules the fused causal kernel out: 64 MiB in float32.
BLOCK_LOGITS = 2**24


class Constants(NamedTuple):
    """What a layer's attention is made of: factor on the logits, soft-cap (Gemma-2), sliding window in positions."""

    scale: float
    softcap: float | None = None
    sliding_window: int | None = None


def carry(keys: Any, layer: Any) -> Tensor:
    """Tag a view of a layer's keys with the layer, for `attention` to find (the stored tensor would be in a cycle)."""
    keys.kv_layer = layer
    return keys


def fold(query: Tensor, kv_heads: int) -> Tensor:
    """Fold the query heads of a group into the query axis: (B, H, Q, d) to (B, Hkv, G*Q, d); K, V never repeat."""
    batch, _, length, d = query.shape
    return query.reshape(batch, kv_heads, -1, d) if length else query.new_empty(batch, kv_heads, 0, d)


def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, constants: Constants, mask: Tensor | None = None
) -> Tensor:
    """Grouped-query attention with an additive mask, exact soft-cap, bias added after the cap.

    Parameters
    ----------
    query : Tensor, (B, H, Q, d)
    key, value : Tensor, (B, Hkv, L, d)
    constants : Constants
        Its sliding window is not applied here: the mask holds it.
    mask : Tensor, (B or 1, Hkv or 1, Q or G*Q, L), optional
        Added to the logits (-inf hides an entry); with G*Q rows, its query heads are folded already.

    Returns
    -------
    Tensor, (B, H, Q, d)
    """
    batch, heads, length, d = query.shape
    kv_heads, group = key.shape[1], heads // key.shape[1]
    folded = fold(query, kv_heads)
    if mask is not None and mask.shape[2] == length > 1:
        mask = mask[:, :, None].expand(*mask.shape[:2], group, *mask.shape[2:]).flatten(2, 3)
    if constants.softcap is None:
        mask = None if mask is None else mask.to(query.dtype)
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=constants.scale)
    else:
        logits = cap((folded @ key.transpose(2, 3)).float() * constants.scale, constants.softcap)
        logits = logits if mask is None else logits + mask
        out = logits.softmax(-1).to(value.dtype) @ value
    return out.reshape(batch, heads, length, d)


def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, constants: Constants, padding: Tensor | None = None
) -> Tensor:
    """Causal attention of the last Q of L positions, sliding window and soft-cap exact, memory linear in L.

    Parameters
    ----------
    query : Tensor, (B, H, Q, d)
        Queries of the last Q positions.
    key, value : Tensor, (B, Hkv, L, d)
    constants : Constants
    padding : Tensor, (B, L), bool, optional
        False where a key is padding.

    Returns
    -------
    Tensor, (B, H, Q, d)
    """
    heads, length, total = query.shape[1], query.shape[2], key.shape[2]
    window = constants.sliding_window
    plain = constants.softcap is None and padding is None and (window is None or window >= total)
    if plain and length == total:
        group = heads // key.shape[1]
        key, value = (x.repeat_interleave(group, 1) if group > 1 else x for x in (key, value))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=constants.scale)
    if plain and length == 1:
        return masked_attention(query, key, value, constants)
    block = max(1, min(256, BLOCK_LOGITS // (heads * min(total, window or total))))
    # one buffer: small results kept between blocks of growing size would pin the heap, which then grows with L * L
    out = query.new_empty(*query.shape[:3], value.shape[3])
    for start in range(0, length, block):
        stop = min(start + block, length)
        first = total - length + start  # position of the block's first query
        low = 0 if window is None else max(0, first - window + 1)
        high = total - length + stop
        seen = visible(
            torch.arange(first, high, device=key.device), torch.arange(low, high, device=key.device), window
        )[None, None]
        if padding is not None:
            seen = seen & padding[:, None, None, low:high]
            # a padding query sees nothing: let it see itself, its output is never used
            seen = seen | torch.eye(high - low, dtype=torch.bool, device=key.device)[first - low :]
        mask = torch.zeros(seen.shape, dtype=query.dtype, device=key.device).masked_fill_(~seen, float("-inf"))
        out[:, :, start:stop] = masked_attention(
            query[:, :, start:stop], key[:, :, low:high], value[:, :, low:high], constants, mask
        )
    return out


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    position_ids: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention function in transformers' interface: shapes (B, H, Q, d) in, (B, Q, H, d) out.

    `attention_mask` is what `padding_mask` returned: (B, L) bool or None.
    """
    constants = Constants(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap, sliding_window)
    layer = getattr(key, "kv_layer", None)
    if layer is None:
        padding = None if attention_mask is None else attention_mask[:, -key.shape[2] :]
        out = causal_attention(query, key, value, constants, padding)
    else:
        out = layer.attend(query, key, value, constants, position_ids)
    return out.transpose(1, 2).contiguous(), None


def padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """Mask function in transformers' interface: the padding (B, L) itself, None where nothing is padded.

    Causality and windows are the attention function's: the stock function builds n*n masks for models with windows.
    """
    return None if attention_mask is None or bool(attention_mask.all()) else attention_mask.bool()


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, padding_mask)
