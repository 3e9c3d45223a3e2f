"""What the library's functions are given, checked in one place: a mistake is told before anything runs."""

from typing import Any

from torch import Tensor

from selkv.attention import NAME
from selkv.errors import UserError, unknown

TOKENIZE = "tokenizer(text, return_tensors='pt')['input_ids']"
SLIDING = ("compress", "keep")


def prepared(model: Any) -> None:
    """Raise UserError unless it is a model with our attention."""
    if not hasattr(model, "config"):
        raise UserError(f"model is a {type(model).__name__}; load one with selkv.load_model(path)")
    attention = model.config._attn_implementation
    if attention != NAME:
        raise UserError(
            f"the model runs on attention {attention!r}, which knows no bias; call selkv.prepare(model) once, or load "
            "it with selkv.load_model(path)"
        )


def sliding(value: str) -> str:
    """The value of ``sliding_layers``, if it is one; UserError otherwise."""
    if value not in SLIDING:
        raise unknown("sliding_layers", value, SLIDING)
    return value


def token_ids(name: str, ids: Any) -> Tensor:
    """Ids as (B, n), n > 0; UserError for anything but (n,) or (B, n) whole numbers."""
    if not isinstance(ids, Tensor):
        raise UserError(f"{name} is a {type(ids).__name__}, not a tensor of token ids; give {TOKENIZE}")
    if ids.is_floating_point() or ids.dtype.itemsize == 1 or ids.dim() not in (1, 2) or not ids.numel():
        raise UserError(
            f"{name} of shape {tuple(ids.shape)} and {ids.dtype} holds no prompt; give (n,) or (B, n) token ids, at "
            f"least one: {TOKENIZE}"
        )
    return ids.reshape(-1, ids.shape[-1])


def known(name: str, ids: Tensor, model: Any) -> None:
    """Raise UserError for ids outside the vocabulary (a GPU would stop with an assertion and be lost)."""
    size = model.config.get_text_config().vocab_size
    strange = ids[(ids < 0) | (ids >= size)]
    if len(strange):
        raise UserError(
            f"{name} has id {int(strange[0])}, and the model's vocabulary ends at {size - 1}; use the model's own "
            "tokenizer: selkv.load_tokenizer(path)"
        )


def padding(mask: Any, ids: Tensor) -> Tensor:
    """The mask of ids (B, n), in their dtype; UserError unless rows of one shape begin with zeros and end with ones."""
    if not isinstance(mask, Tensor) or mask.shape not in (ids.shape, ids.shape[len(ids) == 1 :]):
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise UserError(
            f"attention_mask is {shape}, and input_ids {tuple(ids.shape)}; give the tensor that the tokenizer returned "
            "with them"
        )
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise UserError("attention_mask must hold 1 on tokens and 0 on padding, nothing else")
    mask = mask.to(ids).reshape(ids.shape)
    if not bool(mask[:, -1].all()) or bool((mask.diff(dim=1) < 0).any()):
        raise UserError(
            "attention_mask pads on the right or in between; pad on the left: tokenizer.padding_side='left'"
        )
    return mask
