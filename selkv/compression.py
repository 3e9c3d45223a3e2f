"""From a prefill to caches: budgets, then layer by layer, so that one layer's window attention lives at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from selkv.budget import parse_ratio
from selkv.cache import CompressedCache, CompressedLayer
from selkv.errors import UserError
from selkv.method import Method, NativeMethod
from selkv.named import method_named
from selkv.native import NativeLayer
from selkv.prefill import Prefill
from selkv.state import Kept, LayerState


class Job(NamedTuple):
    """One compression of one prefill: a method and the fraction of entries that it keeps."""

    method: Method
    ratio: Fraction


def job_of(method: str | Method, ratio: float | str | Fraction) -> Job:
    """The job of a method, or of the name of one, and a ratio; UserError where one of them is none."""
    chosen = method_named(method) if isinstance(method, str) else method
    if not isinstance(chosen, Method):
        raise UserError(f"method={method!r} is no method; give a name, e.g. 'selkv', or an object, e.g. selkv.SelKV()")
    return Job(chosen, parse_ratio(ratio))


def layer_budgets(job: Job, prefill: Prefill, sliding_layers: str = "compress") -> list[int]:
    """Entries of each layer, summed over KV heads.

    Parameters
    ----------
    job : Job
    prefill : Prefill
    sliding_layers : str
        ``compress`` treats sliding-window layers like the others (their n is the window); ``keep`` leaves them whole.
    """
    whole = [sliding_layers == "keep" and layer.sliding_window is not None for layer in prefill.layers]
    open_layers = [layer for layer, all_ in zip(prefill.layers, whole, strict=True) if not all_]
    shares = iter(job.method.budgets(replace(prefill, layers=open_layers), job.ratio) if open_layers else [])
    return [
        layer.kv_heads * layer.n if all_ else next(shares) for layer, all_ in zip(prefill.layers, whole, strict=True)
    ]


def compress_layer(method: Method, layer: LayerState, budget: int, prefill: Prefill) -> Kept:
    """One layer by one method; a budget that holds everything still passes through the method."""
    leader = method.leader(layer.layer)
    if leader != layer.layer:
        layer = replace(layer, leader=prefill.layers[leader])
    return method.compress(layer, budget)


def compressed_layers(
    jobs: Sequence[Job], prefill: Prefill, sliding_layers: str = "compress", release: bool = False
) -> Iterator[tuple[LayerState, list[Kept]]]:
    """Compress all jobs, layer by layer: yields each layer and what every job keeps of it.

    Window attention is computed once a layer, shared by the jobs and freed before the next layer. `release` is for
    little memory: methods remember it no longer than they choose, and the list ``prefill.layers`` is emptied on the
    way (a layer goes when no later one reads it), so that full and compressed cache never lie side by side.
    """
    budgets = [layer_budgets(job, prefill, sliding_layers) for job in jobs]
    every = range(len(prefill.layers) if release else 0)
    until = {i: i for i in every} | {job.method.leader(i): i for i in every for job in jobs}  # who reads a layer last
    for i, layer in enumerate(prefill.layers):
        shared = layer if release else layer.remembering()
        yield (
            layer,
            [compress_layer(job.method, shared, budget[i], prefill) for job, budget in zip(jobs, budgets, strict=True)],
        )
        for done in [read for read, last in until.items() if last == i]:
            cast(list[Any], prefill.layers)[done] = None


def compressed_cache(
    jobs: Sequence[Job],
    prefill: Prefill,
    room: int,
    sliding_layers: str = "compress",
    layer_type: type[CompressedLayer] = CompressedLayer,
    memory: dict[int, list[Tensor]] | None = None,
) -> tuple[CompressedCache, list[list[Kept]]]:
    """Cache whose rows are the jobs, ready to decode after one prompt.

    Parameters
    ----------
    jobs : sequence of Job
    prefill : Prefill
    room : int
        Tokens that decoding will append.
    sliding_layers : str
    layer_type : type
        Class of the layers (`selkv.fidelity` measures with its own).
    memory : dict, optional
        Buffers by layer, empty at first: the caches of a run that are made with it have one memory, each after the
        other is done.

    Returns
    -------
    cache : CompressedCache
    summaries : list of list of Kept
        For each job, each layer's `Kept` with empty keys and values: positions, bias and counters.
    """
    lengths = torch.full((len(jobs),), prefill.n)
    layers: list[CompressedLayer] = []
    summaries: list[list[Kept]] = [[] for _ in jobs]
    for i, (_, rows) in enumerate(compressed_layers(jobs, prefill, sliding_layers)):
        layers.append(layer_type(rows, lengths, room, None if memory is None else memory.setdefault(i, [])))
        for summary, kept in zip(summaries, rows, strict=True):
            summary.append(kept.described())
    return CompressedCache(layers, lengths), summaries


def native_cache(
    job: Job, prefill: Prefill, sliding_layers: str = "compress"
) -> tuple[CompressedCache, list[list[Kept]]]:
    """Cache of one row whose method goes on evicting or merging (``decode=native``); as `compressed_cache`."""
    method = cast(NativeMethod, job.method)
    budgets = layer_budgets(job, prefill, sliding_layers)
    layers = [
        NativeLayer(method, layer, budget, prefill.n) for layer, budget in zip(prefill.layers, budgets, strict=True)
    ]
    summary = [layer.state.kept.described() for layer in layers]
    return CompressedCache(list(layers), torch.tensor([prefill.n])), [summary]


def is_native(method: Method) -> bool:
    """Whether the method decodes natively and so needs a cache of its own."""
    return getattr(method, "decode", "one_shot") == "native"
