"""Methods of this project as presses of kvpress (https://github.com/NVIDIA/kvpress), for its pipeline and evaluation.

Two meanings of a ratio meet here: kvpress's ``compression_ratio`` is what is REMOVED, this project's ``ratio`` what is
kept. Needs the extra ``selkv[kvpress]``.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from kvpress import BasePress
from kvpress.utils import get_prerope_query_states
from torch import Tensor
from transformers.cache_utils import DynamicLayer
from transformers.models.llama.modeling_llama import rotate_half

from selkv.attention import NAME
from selkv.budget import kept_per_head, parse_ratio
from selkv.cache import CompressedLayer
from selkv.checks import sliding
from selkv.compression import Job, compressed_layers, job_of
from selkv.errors import UserError
from selkv.load import prepare
from selkv.method import Method
from selkv.prefill import Prefill
from selkv.recording import RecordingLayer
from selkv.rotary import inverse_frequencies
from selkv.selkv import SelKV
from selkv.state import LayerState


def kept_share(compression_ratio: float) -> Fraction:
    """The fraction kept, 1 - compression_ratio, in exact decimals; UserError where that is outside [0, 1)."""
    try:
        return parse_ratio(1 - Fraction(str(compression_ratio)))
    except (ValueError, ZeroDivisionError, UserError):
        raise UserError(
            f"compression_ratio={compression_ratio!r} is not a number in [0, 1): the share of entries removed, e.g. "
            "0.75"
        ) from None


@dataclass
class SelKVPress(BasePress):
    """A method of this project under kvpress's pipeline, exact, with its logit bias.

    A press can return keys and values only, so this one puts a cache layer of ours, which holds the bias, in the place
    of the stock one, and gives the model our attention (`selkv.prepare`) when it is first used on it.

    Attributes
    ----------
    compression_ratio : float
        Fraction of the entries that is REMOVED, in [0, 1).
    method : str or Method
        A method, or the name of one; SelKV by default.
    sliding_layers : str
        ``compress`` or ``keep`` layers that see a sliding window.
    """

    compression_ratio: float = 0.0
    method: str | Method = "selkv"
    sliding_layers: str = "compress"

    def __post_init__(self) -> None:
        self.job()
        sliding(self.sliding_layers)

    def job(self) -> Job:
        """Method and ratio, checked; kvpress's evaluation sets the ratio after construction."""
        return job_of(self.method, kept_share(self.compression_ratio))

    @contextlib.contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Compress the prompt that passes the model inside the context: its layers' caches are replaced at its end."""
        if model.config._attn_implementation != NAME:
            prepare(model)
        job = self.job()

        def record(module: Any, _: Any, inputs: dict[str, Any]) -> None:
            cache, prompt = inputs["past_key_values"], inputs["hidden_states"]
            index, n = module.layer_idx, prompt.shape[1]
            if len(cache.layers) > index and cache.layers[index].get_seq_length():
                return  # the prompt has passed: this is decoding
            if len(prompt) > 1:
                raise UserError(
                    f"SelKVPress takes one prompt at a time, not {len(prompt)}; selkv.compress takes batches"
                )
            cache.layers += [DynamicLayer() for _ in range(index + 1 - len(cache.layers))]
            cache.layers[index] = RecordingLayer(job.method.needs(n, kept_per_head(n, job.ratio)), n)

        def replace(_: Any, __: Any, inputs: dict[str, Any], ___: Any) -> None:
            layers = inputs["past_key_values"].layers
            if isinstance(layers[0], RecordingLayer):
                layers[:] = _compressed(model, layers, job, self.sliding_layers)

        decoder = getattr(model.model, "language_model", model.model)
        attentions = [layer.self_attn for layer in decoder.layers]
        with contextlib.ExitStack() as hooks:
            for attention in attentions:
                hooks.callback(attention.register_forward_pre_hook(record, with_kwargs=True).remove)
            hooks.callback(attentions[-1].register_forward_hook(replace, with_kwargs=True).remove)
            yield


def _compressed(model: Any, layers: list[RecordingLayer], job: Job, sliding_layers: str) -> "list[PressLayer]":
    n, count = layers[0].seen, len(layers)
    states = [
        layer.state(i, count, f)
        for i, (layer, f) in enumerate(zip(layers, inverse_frequencies(model, count), strict=True))
    ]
    state = Prefill(states, torch.empty(0), n)
    return [PressLayer(rows, torch.tensor([n]), 0) for _, rows in compressed_layers([job], state, sliding_layers)]


class PressLayer(CompressedLayer):
    """A compressed layer that behaves as kvpress's pipeline expects.

    The pipeline asks for the stored length, gives positions itself, and forgets an answer by cutting `keys` and
    `values` back to that length.
    """

    def get_seq_length(self) -> int:
        """Stored entries, unlike the logical length of the base class."""
        return min(self.used, self.keys.shape[2])

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append (1, Hkv, q, d) after what the pipeline has left."""
        if self.used > self.keys.shape[2]:
            self.crop(self.keys.shape[2] - self.used)
        return super().update(key_states, value_states)


@dataclass
class SelKVValuesPress(BasePress):
    """SelKV without its logit bias (alpha = 0): merged values under the model's stock attention.

    What is possible where our attention cannot be used; `SelKVPress` is the whole method.

    Attributes
    ----------
    compression_ratio : float
        Fraction of the entries that is REMOVED, in [0, 1).
    method : SelKV
        With ``alpha=0``, ``reposition=False`` and a routing that needs the window only.
    """

    compression_ratio: float = 0.0
    method: SelKV = field(default_factory=lambda: SelKV(alpha=0))

    def __post_init__(self) -> None:
        kept_share(self.compression_ratio)
        if not isinstance(self.method, SelKV):
            raise UserError(f"method={self.method!r} is no SelKV object; give e.g. SelKV(alpha=0), or use SelKVPress")
        if self.method.alpha or self.method.reposition or self.method.routing == "literal":
            raise UserError(
                f"{self.method} needs more than keys and values of the window; use SelKVPress, or SelKV(alpha=0) with "
                "reposition=False and another routing than literal"
            )

    def compress(
        self, module: Any, hidden_states: Tensor, keys: Tensor, values: Tensor, attentions: Tensor | None, kwargs: dict
    ) -> tuple[Tensor, Tensor]:
        """Kept keys and merged values, (B, Hkv, m, d)."""
        cos, sin = (x[:, None, -self.method.window :] for x in kwargs["position_embeddings"])
        queries = get_prerope_query_states(module, hidden_states[:, -self.method.window :])
        turned, rest = queries.split([cos.shape[-1], queries.shape[-1] - cos.shape[-1]], -1)
        queries = torch.cat([turned * cos + rotate_half(turned) * sin, rest], -1)  # (B, H, W, d)
        m = kept_per_head(keys.shape[2], kept_share(self.compression_ratio))
        kept = [
            self.method.compress(
                LayerState(
                    keys=keys[row],
                    values=values[row],
                    queries=queries[row],
                    positions=torch.arange(keys.shape[2], device=keys.device),
                    scale=module.scaling,
                    softcap=getattr(module, "attn_logit_softcapping", None),
                    sliding_window=getattr(module, "sliding_window", None),
                    layer=module.layer_idx,
                ),
                m * keys.shape[1],
            )
            for row in range(len(keys))
        ]
        return torch.stack([row.keys for row in kept]), torch.stack([row.values for row in kept])
