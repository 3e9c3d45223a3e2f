"""Models: loading through transformers, our attention, and a probe that refuses models that do not fit."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache

from selkv.attention import NAME
from selkv.errors import UserError
from selkv.prefill import cache_argument
from selkv.recording import RecordingLayer
from selkv.state import Needs

# Largest difference of the probe's logits, relative to the largest logit, by bytes of the dtype.
TOLERANCE = {4: 1e-3, 2: 5e-2}


def load_model(path: str, **options: Any) -> Any:
    """Load a causal language model with our attention and probe it.

    Parameters
    ----------
    path : str
        Folder or hub id.
    **options
        Passed to ``AutoModelForCausalLM.from_pretrained``: revision, dtype, device_map, quantization_config,
        trust_remote_code.

    Raises
    ------
    UserError
        When it cannot be found, needs access, or does not fit (see `probe`).
    """
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=NAME, **options)
    except OSError as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(
            f"model {path!r} could not be loaded: {reason} Give a folder or a hub id (model=hf model.path=...); gated "
            "models need an accepted licence and HF_TOKEN; offline, download it before."
        ) from None
    return prepare(model.eval())


def load_tokenizer(path: str, **options: Any) -> Any:
    """Load the tokenizer that belongs to a model; raises UserError where there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, **options)
    except (OSError, ValueError) as problem:
        raise UserError(f"tokenizer of {path!r} could not be loaded: {str(problem).strip().splitlines()[0]}") from None


def prepare(model: Any) -> Any:
    """Give a loaded model our attention function and check that it fits; returns the model."""
    model.set_attn_implementation(NAME)
    probe(model)
    return model


@torch.no_grad()
def probe(model: Any, tokens: int = 8) -> None:
    """Run a few tokens and refuse a model that our attention does not serve.

    Raises
    ------
    UserError
        When a layer was not seen (it has no attention of ours) or the logits differ from the model's own attention.
    """
    config = model.config.get_text_config()
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    ids = (torch.arange(tokens, device=model.device) * 7 + 11) % config.vocab_size
    count = config.num_hidden_layers
    recorded = [RecordingLayer(Needs(window=tokens), tokens) for _ in range(count)]
    inputs: Mapping[str, Any] = {cache_argument(model): Cache(layers=list(recorded))}
    logits = model(input_ids=ids[None], use_cache=True, **inputs).logits.float()
    unseen = [i for i, layer in enumerate(recorded) if layer.queries is None]
    if unseen:
        raise UserError(
            f"model {name!r} does not fit: layers {unseen} of {count} do not pass our attention (linear attention, "
            "shared caches or an attention of its own). Use a model whose layers all use softmax attention."
        )
    model.set_attn_implementation("eager")
    expected = model(input_ids=ids[None], use_cache=False).logits.float()
    model.set_attn_implementation(NAME)
    difference = float((logits - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
    limit = TOLERANCE[min(4, model.dtype.itemsize)]
    if not difference <= limit:
        raise UserError(
            f"model {name!r} does not fit: its logits differ from its own attention by {difference:.1e} (limit "
            f"{limit:.0e}); its attention has a part that ours does not know."
        )
