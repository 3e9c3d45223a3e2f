"""Differences to a reference, with their paired intervals: the picture of an ablation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eval.grid import number
from eval.plots.curves import label_grid
from eval.plots.style import GREY, INK, WIDTH, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Bar(NamedTuple):
    """A method's difference in points, its paired interval (NaN without one) and whether it counts as a difference."""

    label: str
    series: str
    delta: float
    low: float
    high: float
    significant: bool


def differences(panels: Mapping[str, Sequence[Bar]], styles: Mapping[str, Style], reference: str) -> "Figure":
    """Horizontal bars, the first on top, a panel a ratio; a filled bar marks a difference, a hollow one may be noise.

    Parameters
    ----------
    panels : mapping of str to sequence of Bar
        By ratio; bars in table order.
    styles : mapping of str to Style
        By series.
    reference : str
        Name of what the differences are to.
    """
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    tallest = max(map(len, panels.values()))
    width = WIDTH if columns > 1 else WIDTH * 0.72
    figure = Figure(figsize=(width, rows * (0.24 * tallest + 0.35) + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axes, (title, bars) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, bars, styles)
        axes.set_title(f"Ratio {title}", loc="left")
    label_grid(grid, len(panels), "")
    for axes in grid[:, 1:].flat:
        axes.tick_params(labelleft=False)
    low, high = grid[0, 0].get_xlim()
    grid[0, 0].set_xlim(low, high + 0.24 * (high - low) * max(1, columns / 2))  # room for the numbers
    figure.supxlabel(
        f"Difference to {reference}, points, with 95 % paired intervals; filled: Holm-corrected p < 0.05", fontsize=8
    )
    return figure


def _panel(axes: "Axes", bars: Sequence[Bar], styles: Mapping[str, Style]) -> None:
    for place, bar in enumerate(bars):
        color = styles[bar.series].color
        face = color if bar.significant else "white"
        axes.barh(place, bar.delta, height=0.62, color=face, edgecolor=color, linewidth=1.2)
        if not np.isnan(bar.low):
            axes.plot([bar.low, bar.high], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt")
            axes.plot([bar.low, bar.high], [place, place], "|", color=INK, markersize=5)
        text = number(bar.delta, sign=True).replace("-", "\N{MINUS SIGN}")
        axes.annotate(text, (1, place), xycoords=("axes fraction", "data"), va="center", ha="right", fontsize=7)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
