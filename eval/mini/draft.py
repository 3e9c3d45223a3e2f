"""What a generator of rows makes and how much text it may use."""

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from eval.sample import TaskPrompt

# Characters a token of the prose, with SmolLM2's tokenizer.
_CHARS_PER_TOKEN = 4.5


class Draft(NamedTuple):
    """The fields of a row that a generator decides."""

    input: str
    context: str
    answers: tuple[str, ...]
    all_classes: tuple[str, ...] | None = None
    language: str = "en"


class Recipe(NamedTuple):
    """One task: its prompt, and the function that draws a row of about so many tokens."""

    prompt: TaskPrompt
    draw: Callable[[random.Random, int], Draft]


def size(text: str) -> int:
    """Rough number of tokens of a text (no tokenizer is at hand here)."""
    return round(len(text) / _CHARS_PER_TOKEN)


def fill(units: Iterator[str], tokens: int) -> list[str]:
    """Take units while they bring the total nearer to `tokens`."""
    taken: list[str] = []
    used = 0
    for unit in units:
        if used + size(unit) / 2 > tokens:
            break
        used += size(unit)
        taken.append(unit)
    return taken
