"""Fidelity: how far a compressed cache's predictions are from the full cache's, however good the model is.

The full cache's own continuation is teacher-forced through every compressed cache in one ragged batch.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selkv.attention import Constants
from selkv.cache import CompressedCache, CompressedLayer
from selkv.compression import Job, compressed_cache
from selkv.decode import ask
from selkv.full import Full
from selkv.prefill import Prefill, forward

# Logits computed at once: 46 rows times 512 tokens times a vocabulary of 49k words would be 4.6 GB.
BLOCK_LOGITS = 2**24


class Fidelity(NamedTuple):
    """Agreement of one compressed cache with the full one over the tokens of the full cache's continuation.

    Attributes
    ----------
    kl : float
        Mean KL(full || compressed) of the next-token distributions, in nats.
    agreement : float
        Share of positions where both would choose the same token.
    perplexity_ratio : float
        Perplexity of the continuation under the compressed cache over that under the full cache.
    attention_error : list of float
        For each layer, |output - full output| / |full output| of the attention, over all positions and heads.
    """

    kl: float
    agreement: float
    perplexity_ratio: float
    attention_error: list[float]


class MeasuredLayer(CompressedLayer):
    """A layer that compares each row's attention output with that of row 0, the full cache."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.squares = torch.zeros(len(self.keys), dtype=torch.float64, device=self.keys.device)
        self.reference = 0.0

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, constants: Constants, positions: Tensor | None = None
    ) -> Tensor:
        """Attend, and add up the squared differences in float64."""
        out = super().attend(query, key, value, constants, positions)
        wide = out.double()
        self.squares += (wide - wide[:1]).square().flatten(1).sum(1)
        self.reference += float(wide[0].square().sum())
        return out

    @property
    def error(self) -> Tensor:
        """Relative error of each row; (B,)."""
        return (self.squares / max(self.reference, 1e-300)).sqrt()


@torch.no_grad()
def forced_logits(model: Any, cache: CompressedCache, text: Sequence[int]) -> Iterator[Tensor]:
    """Logits of every row while the text passes, in blocks of positions; each (B, c, V)."""
    rows, vocabulary = len(cache.lengths), model.config.get_text_config().vocab_size
    block = max(1, BLOCK_LOGITS // (rows * vocabulary))
    ids = torch.tensor(text, device=model.device)
    for start in range(0, len(text), block):
        part = ids[start : start + block].expand(rows, -1)
        positions = cache.lengths.to(ids.device)[:, None] + start + torch.arange(part.shape[1], device=ids.device)
        yield forward(model, part, cache, positions, logits_to_keep=part.shape[1])


class _Sums:
    """Running float64 sums of one row."""

    def __init__(self) -> None:
        self.kl = self.agree = self.excess = 0.0
        self.count = 0

    def add(self, full: Tensor, other: Tensor, targets: Tensor) -> None:
        """Log-probabilities (c, V) in float64 of both, and the tokens that follow."""
        self.kl += float((full.exp() * (full - other)).sum())
        self.agree += int((full.argmax(-1) == other.argmax(-1)).sum())
        self.excess += float((full - other).gather(1, targets[:, None]).sum())
        self.count += len(targets)


def measure(
    model: Any,
    jobs: Sequence[Job],
    prefill: Prefill,
    text: Sequence[int],
    sliding_layers: str = "compress",
    question: Sequence[int] = (),
    memory: dict[int, list[Tensor]] | None = None,
) -> list[Fidelity]:
    """Fidelity of several compressions of one prompt.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    jobs : sequence of Job
        Ratio 1 passes through the compressed path like the others.
    prefill : Prefill
    text : sequence of int
        The full cache's continuation, at least one token.
    sliding_layers : str
    question : sequence of int
        What is asked after compression, before the text.
    memory : dict, optional
        As in `compressed_cache`.

    Returns
    -------
    list of Fidelity
        One a job.
    """
    rows = [Job(Full(), Fraction(1)), *jobs]
    cache, _ = compressed_cache(rows, prefill, len(question) + len(text), sliding_layers, MeasuredLayer, memory)
    if question:
        ask(model, cache, question)
    sums = compare(((logits[0], logits[1:]) for logits in forced_logits(model, cache, text)), text, len(jobs))
    errors = torch.stack([layer.error for layer in cache.layers], 1)[1:].tolist()
    return [Fidelity(*_means(s), error) for s, error in zip(sums, errors, strict=True)]


def compare(blocks: Iterator[tuple[Tensor, Tensor]], text: Sequence[int], rows: int) -> list[_Sums]:
    """Add up what separates each row's logits (R, c, V) from the full cache's (c, V), block by block."""
    sums = [_Sums() for _ in range(rows)]
    start = 0
    for reference, others in blocks:
        full = reference.double().log_softmax(-1)
        # what follows the last token is what the full cache would choose
        following = [*text[start + 1 : start + 1 + len(full)]]
        targets = torch.tensor([*following, *full[len(following) :].argmax(-1).tolist()], device=full.device)
        for total, logits in zip(sums, others, strict=True):
            total.add(full, logits.double().log_softmax(-1), targets)
        start += len(full)
    return sums


def _means(sums: _Sums) -> tuple[float, float, float]:
    return sums.kl / sums.count, sums.agree / sums.count, math.exp(sums.excess / sums.count)


def measure_native(
    model: Any, cache: CompressedCache, prefill: Prefill, text: Sequence[int], question: Sequence[int] = ()
) -> Fidelity:
    """Fidelity of one native cache, token by token beside the full cache; without attention errors."""
    full, _ = compressed_cache([Job(Full(), Fraction(1))], prefill, len(question) + len(text))
    if question:
        ask(model, full, question)
        ask(model, cache, question)
    pairs = zip(forced_logits(model, full, text), forced_logits(model, cache, text), strict=True)
    (sums,) = compare(((a[0], b) for a, b in pairs), text, 1)
    return Fidelity(*_means(sums), [])


def first_divergence(full: Sequence[int], other: Sequence[int]) -> int | None:
    """Position of the first generated token that differs, None where the texts are equal."""
    if list(full) == list(other):
        return None
    return next((i for i, (a, b) in enumerate(zip(full, other, strict=False)) if a != b), min(len(full), len(other)))


def loops(text: Sequence[int], longest: int = 16, repeats: int = 4) -> bool:
    """Whether a text ends in a loop: its last tokens are one phrase of at most `longest` tokens, `repeats` times."""
    for size in range(1, longest + 1):
        tail = list(text[-size * repeats :])
        if len(tail) == size * repeats and tail[size:] == tail[:-size]:
            return True
    return False
