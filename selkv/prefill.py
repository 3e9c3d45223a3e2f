"""Prefill: run the prompt once and record what the methods of a grid need."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from selkv.recording import RecordingLayer
from selkv.rotary import inverse_frequencies, refuse_rotation
from selkv.state import LayerState, Needs


@dataclass(frozen=True, eq=False)
class Prefill:
    """A prompt after prefill: everything from which any method and ratio can be compressed.

    Attributes
    ----------
    layers : sequence of LayerState
    logits : Tensor, (V,)
        Logits after the last prompt token, from the full cache: the first generated token comes from them.
    n : int
        Prompt tokens; the next token has position n.
    """

    layers: Sequence[LayerState]
    logits: Tensor
    n: int


def cache_argument(model: Any) -> str:
    """Name of the cache argument of the model's forward: ``cache`` in newer transformers, else ``past_key_values``."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def forward(model: Any, ids: Tensor, cache: Cache, positions: Tensor, logits_to_keep: int = 1) -> Tensor:
    """One forward pass with a cache of ours.

    Parameters
    ----------
    ids, positions : Tensor, (B, q), int64
    cache : Cache
    logits_to_keep : int
        Last positions whose logits are computed.

    Returns
    -------
    Tensor, (B, logits_to_keep, V)
    """
    inputs = {cache_argument(model): cache, "position_ids": positions, "logits_to_keep": logits_to_keep}
    return model(input_ids=ids, use_cache=True, **inputs).logits


@torch.no_grad()
def prefill(
    model: Any, input_ids: Tensor, needs: Needs | None = None, chunk: int | None = None, mode: str = "one_pass"
) -> Prefill:
    """Run one prompt through the model and record its layers.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With our attention (`selkv.load.prepare`).
    input_ids : Tensor, (n,) or (1, n), int64
    needs : Needs
        Union over the methods that will compress this prompt.
    chunk : int, optional
        Tokens a forward pass; bounds memory on long prompts.
    mode : str
        ``one_pass`` taps the last queries as they pass; ``two_pass`` is the paper's procedure: the whole prompt, then
        its last W tokens again on a cache without them. The same numbers, at the cost of another pass.

    Returns
    -------
    Prefill

    Raises
    ------
    UserError
        Before anything runs, where keys are to be moved and the model's rotary frequencies change with the length.
    """
    needs = needs or Needs()
    ids = input_ids.reshape(1, -1).to(model.device)
    n, count = ids.shape[1], model.config.get_text_config().num_hidden_layers
    if needs.rotation:
        refuse_rotation(model)
    recorded = [RecordingLayer(needs, n) for _ in range(count)]
    cache = Cache(layers=list(recorded))
    positions = torch.arange(n, device=ids.device)[None]
    step = chunk or n
    for start in range(0, n, step):
        part = slice(start, start + step)
        logits = forward(model, ids[:, part], cache, positions[:, part])
    if mode == "two_pass":
        again = min(needs.window, n)
        for layer in recorded:
            layer.rewind(again, Needs(window=needs.window))
        logits = forward(model, ids[:, -again:], cache, positions[:, -again:])
        for layer in recorded:
            layer.needs = needs
    frequencies = inverse_frequencies(model, count)
    layers = [layer.state(i, count, f) for i, (layer, f) in enumerate(zip(recorded, frequencies, strict=True))]
    return Prefill(layers, logits[0, -1], n)
