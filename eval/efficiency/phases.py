"""Prefill, compression and decoding of one prompt length, each measured apart."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from eval.arms import Arm
from eval.efficiency.kernels import attention_kernel
from eval.efficiency.measure import peak, timed
from eval.efficiency.roofline import Rates, decode_work, prefill_work
from eval.efficiency.rows import Cache, Prompt, Row, Seen, row_of
from eval.memory import free_bytes
from selkv.cache import CompressedCache
from selkv.compression import Job, compressed_cache, is_native, native_cache
from selkv.decode import Stop, greedy
from selkv.prefill import Prefill, prefill
from selkv.state import Kept, Needs

T = TypeVar("T")
WARM_TOKENS = 2048  # a CPU needs no warm-up of the whole length


class Options(NamedTuple):
    """How to measure: timed repeats after one to warm up, tokens to decode, and the run's prefill options."""

    repeats: int = 3
    new_tokens: int = 32
    chunk: int | None = None
    mode: str = "one_pass"
    sliding_layers: str = "compress"


class Arms(NamedTuple):
    """Rows of the table and their jobs, the full cache first."""

    arms: Sequence[Arm]
    jobs: Sequence[Job]


def unfit(model: Any, n: int, options: Options) -> str:
    """Why this length does not fit, or the empty string."""
    config = model.config.get_text_config()
    if n + options.new_tokens > config.max_position_embeddings:
        return f"the model's window is {config.max_position_embeddings} tokens"
    d = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * d * n
    wide = 4 * config.hidden_size + 3 * config.intermediate_size + 4 * config.num_attention_heads * d
    # the prefill's cache, the full arm's copy of it, and what one layer computes for the tokens of a pass
    need = (2 * cache + wide * min(n, options.chunk or n)) * model.dtype.itemsize
    free = free_bytes(model.device)
    return f"needs about {need / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free" if need > free else ""


def measure_length(model: Any, arms: Arms, n: int, options: Options, rates: Rates) -> list[Row]:
    """Measure all arms on one random prompt of n tokens; the arms take turns, so that all see the same load."""
    ids = torch.randint(model.config.get_text_config().vocab_size, (n,), generator=torch.Generator().manual_seed(n))
    filled, state = _prefills(model, arms, ids, options)
    caches = [_turn(model, job, state, ids, options, Seen(), Seen()) for job in arms.jobs]  # to warm up
    compressed, decoded = [Seen() for _ in caches], [Seen() for _ in caches]
    for _ in range(options.repeats):
        for job, *seen in zip(arms.jobs, compressed, decoded, strict=True):
            _turn(model, job, state, ids, options, *seen)
    least = prefill_work(model, n, state.layers).least_seconds(rates)
    prompt = Prompt(n, filled, least, _held(state), options.new_tokens, os.getloadavg()[0])
    new = sum(2 * layer.kv_heads * layer.keys.shape[2] * layer.keys.element_size() for layer in state.layers)
    read = [cache.kv_bytes + new * options.new_tokens // 2 for cache in caches]  # mean over the steps
    steps = [decode_work(model, size).least_seconds(rates) for size in read]
    return [
        row_of(arm, prompt, small, whole, cache, decoded[0], step)
        for arm, small, whole, cache, step in zip(arms.arms, compressed, decoded, caches, steps, strict=True)
    ]


def _prefills(model: Any, arms: Arms, ids: Tensor, options: Options) -> tuple[Seen, Prefill]:
    """Repeat the prefill; returns what was seen and the last state."""
    needs = Needs(window=0)
    for job in arms.jobs:
        needs = needs.union(job.method.needs(len(ids), max(1, int(job.ratio * len(ids)))))

    def run(prompt: Tensor) -> Prefill:
        return prefill(model, prompt, needs, chunk=options.chunk, mode=options.mode)

    run(ids if model.device.type == "cuda" else ids[:WARM_TOKENS])
    seen = Seen()
    for _ in range(options.repeats - 1):
        _observe(seen, lambda: run(ids), model.device)
    return seen, _observe(seen, lambda: run(ids), model.device)


def _observe(seen: Seen, work: Callable[[], T], device: torch.device) -> T:
    with peak(device) as highest:
        seconds, result = timed(work, device)
    seen.times.append(seconds)
    seen.peaks += [] if highest.bytes is None else [highest.bytes]
    return result


def _turn(
    model: Any, job: Job, state: Prefill, ids: Tensor, options: Options, compressed: Seen, decoded: Seen
) -> Cache:
    """Compress and decode once."""

    @torch.no_grad()
    def compress() -> tuple[CompressedCache, list[list[Kept]]]:
        bound = Job(job.method.bound(model, ids, job.ratio), job.ratio)
        if is_native(job.method):
            return native_cache(bound, state, options.sliding_layers)
        return compressed_cache([bound], state, options.new_tokens + 1, options.sliding_layers)

    cache, (summary,) = _observe(compressed, compress, model.device)
    allocated = cache.nbytes
    kernel = attention_kernel(lambda: greedy(model, cache, state.logits, 2, Stop()))  # the step is not counted
    _observe(decoded, lambda: greedy(model, cache, state.logits, options.new_tokens, Stop()), model.device)
    kv = sum(
        2 * kept.entries * layer.keys.shape[2] * layer.keys.element_size()
        for kept, layer in zip(summary, state.layers, strict=True)
    )
    return Cache(kv, allocated, kernel)


def _held(state: Prefill) -> int:
    """Bytes of a prefill."""
    return sum(
        tensor.nbytes
        for layer in state.layers
        for tensor in (layer.keys, layer.values, layer.queries, layer.column_mass, *layer.block_attention.values())
        if tensor is not None
    )
