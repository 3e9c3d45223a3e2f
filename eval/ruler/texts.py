"""What the tasks are made of: filler, names, values, and how many tokens a text has about."""

import random
import re
import uuid
from collections.abc import Iterator, Sequence
from itertools import cycle

from eval.mini import words
from eval.mini.worlds import World

# The repeated sentences of RULER's noise, in other words.
_NOISE = (
    "The hill is steep and the lake is calm.",
    "A cart rolls by and another follows.",
    "Here is the gate, there is the well.",
    "The wind turns and the leaves go with it.",
)
_NOUNS = sorted({*words.OBJECTS, *words.PLACES, *words.SUBJECTS, *words.INSTRUMENTS})
_FIRST = sorted({*_NOUNS, *words.MATERIALS, *words.ADJECTIVES, *words.WEATHER})

_UUID = 36  # letters and signs; as tokens, with SmolLM2's tokenizer:
_UUID_TOKENS = 34
_PIECES = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|-?[A-Za-z]+|\d+|[^\sA-Za-z\d]")


def size(text: str) -> int:
    """About so many tokens: one a word of up to 8 letters, a digit, a sign; more for UUIDs, numbers and
    behind a hyphen.

    No tokenizer is at hand where data is drawn. Those that take digits by three (Llama-3) need fewer.
    """
    return sum(_tokens(piece) for piece in _PIECES.findall(text))


def _tokens(piece: str) -> int:
    if len(piece) == _UUID:
        return _UUID_TOKENS
    if piece.isdigit():
        return 1 + len(piece)
    return 1 + len(piece) // 9 + 2 * (piece[0] == "-" and len(piece) > 1)


def noise() -> Iterator[str]:
    """The same few sentences over and over."""
    return cycle(_NOISE)


def prose(rng: random.Random) -> Iterator[str]:
    """Sentences of a small world: they stand where RULER has essays."""
    return iter(World(rng).chatter, "")


def take(units: Iterator[str], tokens: int) -> list[str]:
    """Units as long as they fit into so many tokens."""
    taken: list[str] = []
    for unit in units:
        tokens -= size(unit)
        if tokens < 0:
            break
        taken.append(unit)
    return taken


def names(rng: random.Random, count: int) -> list[str]:
    """Different names of two words, like ``copper-lantern``; as many as there are where more are wanted."""
    numbers = rng.sample(range(len(_FIRST) * len(_NOUNS)), min(count, len(_FIRST) * len(_NOUNS)))
    return [f"{_FIRST[number // len(_NOUNS)]}-{_NOUNS[number % len(_NOUNS)]}" for number in numbers]


def numbers(rng: random.Random, count: int) -> list[str]:
    """Different numbers of seven digits."""
    return [str(number) for number in rng.sample(range(1_000_000, 10_000_000), count)]


def uuids(rng: random.Random, count: int) -> list[str]:
    """Random UUIDs of version 4."""
    return [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(count)]


def scatter(rng: random.Random, filler: Sequence[str], inserted: Sequence[str]) -> list[str]:
    """The inserted texts in their order, at random places among the filler."""
    places = sorted(rng.choices(range(len(filler) + 1), k=len(inserted)))
    mixed: list[str] = []
    start = 0
    for place, text in zip(places, inserted, strict=True):
        mixed += [*filler[start:place], text]
        start = place
    return [*mixed, *filler[start:]]
