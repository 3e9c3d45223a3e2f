"""What a generator of rows makes and how much text it may use."""

from collections.abc import Iterator

# Characters a token of the prose, with SmolLM2's tokenizer.
_CHARS_PER_TOKEN = 4.5


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
