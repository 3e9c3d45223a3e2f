"""Models: loading through transformers, our attention, and a probe that refuses models that do not fit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError
from transformers.cache_utils import Cache

from selkv.attention import NAME
from selkv.errors import Missing, UserError
from selkv.prefill import cache_argument
from selkv.recording import RecordingLayer
from selkv.state import Needs

# Largest difference of the probe's logits, relative to the largest logit, by bytes of the dtype.
TOLERANCE = {4: 1e-3, 2: 5e-2}
KINDS = ("full_attention", "sliding_attention")
FITS = "Use a decoder whose layers all use softmax attention, full or with a sliding window."


def place(path: str | PathLike[str]) -> str:
    """Folder or hub id as transformers takes it, ``~`` expanded; Missing where it can be neither."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return str(folder)
    try:
        validate_repo_id(str(path))
    except HFValidationError:
        raise Missing(
            f"model {str(path)!r} is neither a folder on this machine nor a hub id such as Qwen/Qwen3-8B"
        ) from None
    return str(path)


@contextmanager
def _told(what: str, path: str) -> Iterator[None]:
    """Retell in one line what transformers says of a place, an option or a device that does not fit."""
    try:
        yield
    except torch.OutOfMemoryError as problem:
        raise UserError(
            f"{what} {path!r} does not fit the device ({_line(problem)}); use dtype bfloat16, device_map auto or "
            "quantization"
        ) from None
    except (OSError, ValueError, ImportError, KeyError, SafetensorError) as problem:
        far = "; gated models need an accepted licence and HF_TOKEN, offline ones a download before"
        hint = "" if Path(path).is_dir() else far
        raise UserError(f"{what} {path!r} could not be loaded: {_line(problem)}{hint}") from None


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())


def load_model(path: str | PathLike[str], **options: Any) -> Any:
    """Load a causal language model with our attention and probe it.

    Parameters
    ----------
    path : str or PathLike
        Folder or hub id.
    **options
        Passed to ``AutoModelForCausalLM.from_pretrained``: revision, dtype, device_map, quantization_config,
        trust_remote_code.

    Raises
    ------
    UserError
        When it cannot be found, needs access or a missing library, is damaged, or does not fit (see `probe`).
    """
    from transformers import AutoModelForCausalLM

    where = place(path)
    with _told("model", where):
        model = AutoModelForCausalLM.from_pretrained(where, attn_implementation=NAME, **options)
    return prepare(model.eval())


def load_tokenizer(path: str | PathLike[str], **options: Any) -> Any:
    """Load the tokenizer that belongs to a model; raises UserError where there is none."""
    from transformers import AutoTokenizer

    where = place(path)
    with _told("tokenizer of", where):
        tokenizer = AutoTokenizer.from_pretrained(where, **options)
    if set(tokenizer("a", add_special_tokens=False)["input_ids"]) <= {tokenizer.unk_token_id}:
        # older transformers make up a tokenizer without words where the files are missing
        raise UserError(f"tokenizer of {where!r} could not be loaded: it knows no words; add its files to the model's")
    return tokenizer


def prepare(model: Any) -> Any:
    """Give a loaded model our attention function and check that it fits; returns the model."""
    if not hasattr(model, "set_attn_implementation"):
        raise UserError(f"model is a {type(model).__name__}; load one with selkv.load_model(path)")
    model.set_attn_implementation(NAME)
    probe(model)
    return model


def declared(config: Any) -> list[str]:
    """What each layer sees by the model's configuration; a few tokens show neither windows nor chunks."""
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    slides = bool(window) and window < config.max_position_embeddings
    kind = "sliding_attention" if slides else "full_attention"
    return getattr(config, "layer_types", None) or [kind] * config.num_hidden_layers


@torch.no_grad()
def probe(model: Any, tokens: int = 8) -> None:
    """Run a few tokens and refuse a model that our attention does not serve.

    Raises
    ------
    UserError
        When a layer was not seen (it has no attention of ours) or hides entries in a way that ours is not told, or when
        the logits differ from the model's own attention.
    """
    config = model.config.get_text_config()
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    ids = (torch.arange(tokens, device=model.device) * 7 + 11) % config.vocab_size
    count = config.num_hidden_layers
    recorded = [RecordingLayer(Needs(window=tokens), tokens) for _ in range(count)]
    inputs: Mapping[str, Any] = {cache_argument(model): Cache(layers=list(recorded))}
    try:
        logits = model(input_ids=ids[None], use_cache=True, **inputs).logits.float()
    except (AttributeError, TypeError, ValueError) as problem:  # encoders, caches of their own
        raise UserError(f"model {name!r} does not fit: {_line(problem).rstrip('.')}. {FITS}") from None
    unseen = [i for i, layer in enumerate(recorded) if layer.queries is None]
    if unseen:
        raise UserError(
            f"model {name!r} does not fit: layers {unseen} of {count} do not pass our attention (linear attention, "
            f"shared caches or an attention of its own). {FITS}"
        )
    for i, (kind, layer) in enumerate(zip(declared(config), recorded, strict=True)):
        if kind not in KINDS or (kind == "sliding_attention" and layer.constants.sliding_window is None):
            raise UserError(
                f"model {name!r} does not fit: layer {i} hides entries by a mask of its own ({kind}). {FITS}"
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
