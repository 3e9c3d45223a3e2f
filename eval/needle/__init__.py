"""Needle in a haystack: one secret at every depth of texts of every length, for the heat map of depth by length.

The test is Kamradt's (2023); needle and question are RULER's single needle (arXiv 2404.06654), the haystack is prose of
small worlds, so scores are not comparable with published ones.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from eval.generated import digest
from eval.longbench import draw
from eval.needle.tasks import TASKS
from eval.ruler import texts
from eval.ruler.needles import TEMPLATE, needle, question
from eval.sample import Benchmark, Sample, TaskPrompt
from selkv.errors import UserError

TASK = TASKS["needle"]
SHORTEST, LONGEST = 256, 131_072


class Place(NamedTuple):
    """Where a needle is: length of the prompt in tokens, depth in percent (0 is the start of the text)."""

    tokens: int
    depth: float


def load(
    tasks: Sequence[str] = ("needle",),
    limit: int | None = None,
    seed: int = 0,
    first: bool = False,
    lengths: Sequence[int] = (1000, 2000, 4000),
    depths: int = 11,
    repeats: int = 1,
) -> Benchmark:
    """The grid of lengths and depths, or a sample of it.

    Parameters
    ----------
    tasks : sequence of str
        There is one.
    limit : int, optional
        Samples of the grid, spread over the lengths (`eval.longbench.draw`); all by default.
    seed : int
    first : bool
        Take the first `limit` instead.
    lengths : sequence of int
        Tokens of prompt and answer, estimated without a tokenizer (`eval.ruler.texts.size`).
    depths : int
        Depths, evenly spaced from 0 to 100 %.
    repeats : int
        Samples of each length and depth.

    Raises
    ------
    UserError
        For a length that no prompt can be made for.
    """
    for length in lengths:
        if not SHORTEST <= length <= LONGEST:
            raise UserError(f"data.lengths={list(lengths)}: {length} is not between {SHORTEST} and {LONGEST}")
    rows = tuple(_samples(seed, [Place(*place) for place in product(lengths, spaced(depths))], repeats))
    chosen = rows if limit is None else rows[:limit] if first else draw(rows, limit, seed)
    return Benchmark(
        name="needle",
        samples=dict.fromkeys(tasks, chosen),
        prompts=dict.fromkeys(tasks, TaskPrompt(TEMPLATE, TASK.max_new_tokens, TASK.chat)),
        expected=dict.fromkeys(tasks, len(rows)),
        sources=dict.fromkeys(tasks, digest(rows)),
        notes=(
            f"needle: {len(rows)} samples, lengths estimated without a tokenizer; not comparable with published ones",
        ),
    )


def spaced(depths: int) -> list[float]:
    """Evenly spaced depths in percent, to one decimal."""
    return np.linspace(0, 100, depths).round(1).tolist()


def place_of(name: str) -> Place:
    """Place of the needle in the sample with this id."""
    tokens, depth = name.split("-")[2:4]
    return Place(int(tokens), float(depth))


def _samples(seed: int, places: Sequence[Place], repeats: int) -> Iterator[Sample]:
    for index, (place, number) in enumerate(product(places, range(repeats))):
        name = f"needle-{seed}-{place.tokens}-{place.depth:g}-{number}"
        yield _sample(random.Random(name), name, place, index)


def _sample(rng: random.Random, name: str, place: Place, index: int) -> Sample:
    (key,), (value,) = texts.names(rng, 1), texts.numbers(rng, 1)
    text, hidden = question([key], several=False), needle(key, value)
    room = place.tokens - TASK.max_new_tokens - texts.size(TEMPLATE + text + hidden)
    sentences = texts.take(texts.prose(rng), room)
    sentences.insert(round(place.depth / 100 * len(sentences)), hidden)
    context = " ".join(sentences)
    return Sample(name, TASK.name, text, context, (value,), len(context.split()), TASK.language, index=index)
