"""The model to measure: a configured one, or one of random weights in any shape."""

from typing import Any, NamedTuple

import torch

from eval.config import RunPlan
from eval.identity import DTYPES, model_options
from eval.manifest import default_device
from eval.memory import require
from selkv.errors import UserError, unknown
from selkv.load import load_model, prepare


class Shape(NamedTuple):
    """Shape of a random Llama; attention dominates with the defaults."""

    layers: int = 4
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    hidden: int = 512
    intermediate: int = 1536
    vocab: int = 32000


def random_model(shape: Shape, window: int, device: torch.device, dtype: Any) -> Any:
    """A Llama of random weights with our attention.

    Parameters
    ----------
    shape : Shape
    window : int
        Longest prompt and generation, in tokens.
    device : torch.device
    dtype : torch.dtype
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    _check(shape, device, dtype)
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=window,
    )
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(config)
    return prepare(model.to(device=device, dtype=dtype).eval())


def _check(shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse what no Llama has, and weights that do not fit."""
    if shape.heads % shape.kv_heads:
        raise UserError(f"heads={shape.heads} is no multiple of kv_heads={shape.kv_heads}")
    if shape.hidden % shape.heads:
        raise UserError(f"hidden={shape.hidden} is no multiple of heads={shape.heads}")
    if shape.head_dim % 2:
        raise UserError(f"head_dim={shape.head_dim} is odd; rotary positions turn pairs, give an even number")
    attention = 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    weights = shape.layers * (attention + 3 * shape.hidden * shape.intermediate) + 2 * shape.vocab * shape.hidden
    require(weights * dtype.itemsize, device, f"a model of {shape}")


def model_of(plan: RunPlan, shape: Shape | None, window: int) -> Any:
    """The plan's model, or a random one where a shape is given."""
    if shape is None:
        path, options = model_options(plan)
        return load_model(path, **options)
    device, name = default_device(plan.model["device"]), plan.model["dtype"]
    if name not in DTYPES:
        raise unknown("model.dtype", name, DTYPES)
    by_device = torch.bfloat16 if device.type == "cuda" else torch.float32
    return random_model(shape, window, device, by_device if name == "auto" else DTYPES[name])
