"""Tiny random models of every family: one second each, attention made far from uniform so that mistakes show."""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

BASE = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# name: (transformers model type, what differs)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama_mha": ("llama", {"num_key_value_heads": 8}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral_window": ("mistral", {"sliding_window": 16}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "gemma2": (
        "gemma2",
        {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 24}),
    "phi3": ("phi3", {}),
}


def build(family: str, attention: str = "selkv", dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A random model of a family; the same weights for the same family and shape, whatever the attention."""
    import selkv.attention  # noqa: F401  (registers the attention function)

    kind, special = FAMILIES[family]
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{**BASE, **special, **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if (
                any(part in name for part in ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"))
                and parameter.ndim == 2
            ):
                parameter.normal_(0, 0.25, generator=generator)
    return model.to(dtype).eval()


def tokens(n: int, seed: int = 0, vocabulary: int = 128) -> Tensor:
    """Random ids (1, n) without the special ones."""
    return torch.randint(3, vocabulary, (1, n), generator=torch.Generator().manual_seed(seed))
