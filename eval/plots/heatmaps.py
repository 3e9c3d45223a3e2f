"""Heat maps over layers: how much of its cache each layer keeps, and which positions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.plots.style import WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HUE = "cividis"  # made for colour-blind readers; its lightness grows evenly, so it survives grey


def budget(shares: Mapping[str, NDArray[np.float64]]) -> "Figure":
    """Share of the entries that each layer keeps; a row per method and ratio.

    Parameters
    ----------
    shares : mapping of str to array, (layers,)
        In [0, 1].
    """
    from matplotlib.figure import Figure

    layers = max(map(len, shares.values()))
    grid = np.full((len(shares), layers), np.nan)
    for row, values in zip(grid, shares.values(), strict=True):
        row[: len(values)] = values
    figure = Figure(figsize=(WIDTH, 0.24 * len(shares) + 0.9), layout="constrained")
    axes = figure.subplots()
    image = axes.pcolormesh(grid, cmap=HUE, vmin=0, vmax=np.nanmax(grid), edgecolors="white", linewidth=0.8)
    axes.set_yticks(np.arange(len(shares)) + 0.5, list(shares))
    ticks = range(0, layers, max(1, -(-layers // 16)))
    axes.set_xticks([tick + 0.5 for tick in ticks], [str(tick) for tick in ticks])
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_xlabel("Layer")
    figure.colorbar(image, ax=axes, label="Share kept", pad=0.01)
    return figure


def kept_positions(
    positions: Mapping[str, Sequence[NDArray[np.int64]]], n: int, title: str, bins: int = 128
) -> "Figure":
    """Which positions of one prompt survive: layers down, positions along, a panel a method.

    Parameters
    ----------
    positions : mapping of str to sequence of arrays, (Hkv, m)
        Kept positions of each layer; -1 pads.
    n : int
        Prompt tokens.
    title : str
        Sample and ratio.
    bins : int
        Columns; a cell shows the share of its positions (over the KV heads) that is kept.
    """
    from matplotlib.figure import Figure

    edges = np.linspace(0, n, min(bins, n) + 1)
    figure = Figure(figsize=(WIDTH, sum(0.5 + 0.045 * len(p) for p in positions.values()) + 0.8), layout="constrained")
    grid = figure.subplots(len(positions), 1, squeeze=False, sharex=True)[:, 0]
    image = None
    for axes, (label, layers) in zip(grid, positions.items(), strict=True):
        shares = np.stack([_density(layer, edges) for layer in layers])
        image = axes.pcolormesh(edges, np.arange(len(layers) + 1), shares, cmap=HUE, vmin=0, vmax=1, rasterized=True)
        axes.set_title(label, loc="left")
        axes.set_ylabel("Layer")
        axes.invert_yaxis()
        axes.grid(False)
    grid[-1].set_xlabel("Position in the prompt")
    figure.suptitle(title, fontsize=9)
    if image is not None:
        figure.colorbar(image, ax=list(grid), label="Share kept", pad=0.01)
    return figure


def _density(layer: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the positions between two edges that is kept, over the KV heads; (bins,)."""
    held, _ = np.histogram(layer[layer >= 0], edges)
    room = np.diff(np.ceil(edges))  # whole positions in a bin; the last edge is n itself
    share: NDArray[np.float64] = held / (room * len(layer))
    return share
