"""Attention of the observation window, recomputed from the recorded queries: the second pass that nobody runs."""

import torch
from torch import Tensor


def cap(logits: Tensor, softcap: float | None) -> Tensor:
    """Soft-cap attention logits (Gemma-2): softcap * tanh(logits / softcap)."""
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def attention_logits(queries: Tensor, keys: Tensor, scale: float, softcap: float | None = None) -> Tensor:
    """Logits of grouped-query attention in float32, without repeating the keys.

    Parameters
    ----------
    queries : Tensor, (H, W, d)
    keys : Tensor, (Hkv, n, d)
        Query head h reads KV head h // (H // Hkv).
    scale : float
    softcap : float or None

    Returns
    -------
    Tensor, (H, W, n), float32
    """
    heads, window, d = queries.shape
    folded = queries.reshape(keys.shape[0], -1, d)  # (Hkv, G*W, d): the group becomes more queries
    logits = (folded.float() @ keys.float().transpose(1, 2)).mul_(scale)
    return cap(logits.view(heads, window, -1), softcap)


def visible(query_positions: Tensor, key_positions: Tensor, sliding_window: int | None) -> Tensor:
    """Which keys each query sees: no later one, and none older than the sliding window; (..., Q, K) bool."""
    distance = query_positions[..., :, None] - key_positions[..., None, :]
    seen = distance >= 0
    return seen if sliding_window is None else seen & (distance < sliding_window)


def window_attention(
    queries: Tensor,
    keys: Tensor,
    positions: Tensor,
    scale: float,
    softcap: float | None = None,
    sliding_window: int | None = None,
    hidden_keys: Tensor | None = None,
) -> Tensor:
    """Softmax attention of the last W queries on all keys, as the model's eager attention gives it.

    Parameters
    ----------
    queries : Tensor, (H, W, d)
        Queries of the last W positions.
    keys : Tensor, (Hkv, n, d)
    positions : Tensor, (n,)
        Positions of the keys, consecutive; the last is that of the last query.
    scale, softcap, sliding_window
        Constants of the layer.
    hidden_keys : Tensor, (Hkv, e, d), optional
        Keys just before `keys`; they count in the denominator and are left out of the result.

    Returns
    -------
    Tensor, (H, W, n), float32
    """
    hidden = 0 if hidden_keys is None else hidden_keys.shape[1]
    if hidden_keys is not None:
        keys = torch.cat([hidden_keys, keys], 1)
    last = positions[-1]
    key_positions = torch.arange(-keys.shape[1] + 1, 1, device=keys.device) + last
    query_positions = torch.arange(-queries.shape[1] + 1, 1, device=keys.device) + last
    logits = attention_logits(queries, keys, scale, softcap)
    blocked = ~visible(query_positions, key_positions, sliding_window)
    # softmax in place: a second tensor of this size is not needed
    logits.masked_fill_(blocked, float("-inf")).sub_(logits.amax(-1, keepdim=True)).exp_()
    return logits.div_(logits.sum(-1, keepdim=True))[..., hidden:]
