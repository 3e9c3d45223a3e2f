"""Which prompt positions a cell keeps, small enough for its record: bit sets by layer and KV head."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.records import Positions


def pack(positions: Sequence[NDArray[np.int64]], n: int) -> Positions:
    """Positions of all layers as text.

    Parameters
    ----------
    positions : sequence of array, (Hkv, m), int64
        One a layer; -1 pads.
    n : int
        Prompt tokens.
    """
    layers = []
    for layer in positions:
        bits = np.zeros((len(layer), n + 1), dtype=bool)
        np.put_along_axis(bits, layer, True, axis=1)  # -1 falls into the spare last column
        layers.append(base64.b64encode(zlib.compress(np.packbits(bits[:, :n]).tobytes(), 9)).decode())
    return {"n": n, "heads": len(positions[0]) if positions else 0, "layers": layers}


def unpack(packed: Mapping[str, Any]) -> list[NDArray[np.int64]]:
    """Positions (Hkv, m) of each layer, ascending; -1 pads heads that keep fewer."""
    n, heads = packed["n"], packed["heads"]
    return [_positions(text, heads, n) for text in packed["layers"]]


def _positions(text: str, heads: int, n: int) -> NDArray[np.int64]:
    raw = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    bits = np.unpackbits(raw, count=heads * n).reshape(heads, n).astype(bool)
    rows = [np.flatnonzero(row) for row in bits]
    out = np.full((heads, max(map(len, rows))), -1, dtype=np.int64)
    for filled, row in zip(out, rows, strict=True):
        filled[: len(row)] = row
    return out
