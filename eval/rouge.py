"""ROUGE-L as the package ``rouge`` 1.0.1 computes it, without its recursion and its tables of dicts.

The package works on *sets* of words: it takes one longest common subsequence (LCS) of every pair of reference
and predicted sentence and counts the distinct words of all of them together. Which LCS is taken therefore
matters: on the way back through the table, equal words are always matched; else the path goes up (drops the
reference's word) only where that is strictly longer.

Rows of the LCS table are bit vectors (Hyyrö 2004, "Bit-parallel LCS-length computation revisited") that say at which
columns the row grows. The way back goes left to the nearest such column and there matches or goes up. The package also
matches in a column where the row does not grow; there the word to the left is the same one and so is all that follows
(induction over rows: the words depend on the row and the value of a cell, not on its column).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import isqrt

# Above this many table cells only every sqrt(n)-th row is kept and the others are computed again: 64 MiB of bits.
CELLS_KEPT = 2**29


def rouge_l(prediction: str, answer: str) -> float:
    """Summary-level ROUGE-L F of two texts.

    Parameters
    ----------
    prediction, answer : str
        Sentences end at every full stop, words at white space; case and other punctuation count.

    Returns
    -------
    float
        2pr / (p + r + 1e-8), p and r over the sets of distinct words; 0.0 when a text has no sentence.
    """
    predicted, reference = _sentences(prediction), _sentences(answer)
    if not predicted or not reference:
        return 0.0
    union: set[str] = set()
    for x in reference:
        for y in predicted:
            union |= lcs_words(x, y)
    precision = len(union) / len(set().union(*predicted))
    recall = len(union) / len(set().union(*reference))
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def _sentences(text: str) -> list[list[str]]:
    # A sentence of white space only is one empty word: the package splits "" on " ".
    return [sentence.split() or [""] for sentence in text.split(".") if sentence]


def lcs_words(x: Sequence[str], y: Sequence[str], cells_kept: int = CELLS_KEPT) -> set[str]:
    """Distinct words of the longest common subsequence that the package reconstructs.

    Parameters
    ----------
    x : sequence of str
        Words of the reference sentence (rows of the table).
    y : sequence of str
        Words of the predicted sentence (columns).
    cells_kept : int
        Number of table cells up to which all rows are kept.
    """
    if set(x).isdisjoint(y):
        return set()
    match = _matcher(y)
    full = (1 << len(y)) - 1
    block = len(x) if len(x) * len(y) <= cells_kept else isqrt(len(x))
    starts = range(0, len(x), block)
    above = [full]  # for each block the row over it; the empty row grows nowhere
    for start in starts[:-1]:
        above.append(deque(_rows(x[start : start + block], match, full, above[-1]), maxlen=1).pop())

    words: set[str] = set()
    column = len(y)
    for start, row_above in zip(reversed(starts), reversed(above), strict=True):
        part = x[start : start + block]
        rows = list(_rows(part, match, full, row_above))
        for word, row in zip(reversed(part), reversed(rows), strict=True):
            column = (~row & ((1 << column) - 1)).bit_length()
            if not column:
                return words
            if word == y[column - 1]:
                words.add(word)
                column -= 1
    return words


def _rows(x: Sequence[str], match: Callable[[str], int], full: int, row: int) -> Iterator[int]:
    """Rows of the table; as in the paper a bit that is *unset* is a column where the row grows."""
    for word in x:
        hits = row & match(word)
        row = (row + hits | row - hits) & full
        yield row


def _matcher(y: Sequence[str]) -> Callable[[str], int]:
    """Word -> bits of the columns that hold it; few are kept at once, so memory is bounded for long sentences."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for column, word in enumerate(y):
        places[word].append(column)

    @lru_cache(maxsize=1024)
    def match(word: str) -> int:
        if word not in places:
            return 0
        bits = bytearray(len(y) // 8 + 1)
        for column in places[word]:
            bits[column >> 3] |= 1 << (column & 7)
        return int.from_bytes(bits, "little")

    return match
