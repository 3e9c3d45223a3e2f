"""Rotary positions: move cached keys to other positions (SelKV Eq. 7, StreamingLLM's renumbering)."""

from typing import Any

import torch
from torch import Tensor, nn

from selkv.errors import UserError

NO_ROTATION = (
    "re-embedding kept keys (reposition, reembed) needs rotary frequencies that do not change with the length; this "
    "model has dynamic NTK or LongRoPE ones, or none. Leave it off."
)


def rotate(keys: Tensor, shift: Tensor, inv_freq: Tensor) -> Tensor:
    """Rotate cached keys by `shift` positions.

    A pure rotation of the pairs (x_t, x_{t + r/2}), so it is right for every rotary embedding whose frequencies do not
    depend on the length, also when cos and sin carry a constant factor, and leaves dimensions beyond r alone.

    Parameters
    ----------
    keys : Tensor, (..., m, d)
    shift : Tensor, (..., m), int64
        New position minus old position.
    inv_freq : Tensor, (r/2,)
        Radians a position.

    Returns
    -------
    Tensor, (..., m, d)
        In the dtype of `keys`; computed in float32.
    """
    half = inv_freq.shape[0]
    angle = shift[..., None].float() * inv_freq.float()
    cos, sin = angle.cos(), angle.sin()
    x, y, rest = keys.float().split([half, half, keys.shape[-1] - 2 * half], -1)
    return torch.cat([x * cos - y * sin, y * cos + x * sin, rest], -1).to(keys.dtype)


def inverse_frequencies(model: Any, layers: int) -> list[Tensor | None]:
    """Rotary inverse frequencies of each layer, read from the model's rotary module.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A transformers causal language model.
    layers : int

    Returns
    -------
    list of Tensor or None
        (r/2,) a layer; None where frequencies change with the length (dynamic NTK, LongRoPE) or there are none, which
        rules repositioning out.
    """
    rotary = next((m for name, m in model.named_modules() if name.endswith("rotary_emb")), None)
    config = model.config.get_text_config()
    types = getattr(config, "layer_types", None) or [None] * layers
    return [_frequencies(rotary, kind) for kind in types[:layers]]


def refuse_rotation(model: Any) -> None:
    """Raise UserError for a model whose keys cannot be moved: before a run or a prefill is paid for."""
    if any(
        frequency is None for frequency in inverse_frequencies(model, model.config.get_text_config().num_hidden_layers)
    ):
        raise UserError(NO_ROTATION)


def _frequencies(rotary: nn.Module | None, layer_type: str | None) -> Tensor | None:
    rope_type = getattr(rotary, "rope_type", "default")
    prefix = ""
    if isinstance(rope_type, dict):  # Gemma-3: one embedding per layer type
        rope_type, prefix = rope_type.get(layer_type), f"{layer_type}_"
    if rope_type in ("dynamic", "longrope"):
        return None
    return getattr(rotary, f"{prefix}inv_freq", None)


def close_gaps(keys: Tensor, positions: Tensor, last: int, inv_freq: Tensor) -> Tensor:
    """Re-embed kept keys at consecutive positions, in order.

    They end at `last` instead of beginning at 0: only distances matter, and so the next token keeps its true position.

    Parameters
    ----------
    keys : Tensor, (Hkv, m, d)
    positions : Tensor, (Hkv, m), int64
        Position of each key now, ascending; -1 on padding, which comes last.
    last : int
        New position of each head's last key.
    inv_freq : Tensor, (r/2,)

    Returns
    -------
    Tensor, (Hkv, m, d)
    """
    lengths = (positions >= 0).sum(-1, keepdim=True)
    slots = torch.arange(positions.shape[1], device=positions.device) + last + 1 - lengths
    return rotate(keys, slots - positions, inv_freq)
