"""Quantities by layer, for the methods that report them: routed share, gate, log R, attention error."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.plots.curves import cap, label_grid, shared_legend
from eval.plots.measures import counter
from eval.plots.style import WIDTH, Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


def by_layer(
    quantities: Mapping[str, Mapping[str, Array]], styles: Mapping[str, Style], ratio: str, title: str = ""
) -> "Figure":
    """One small panel a quantity.

    Parameters
    ----------
    quantities : mapping of str to mapping of str to array, (layers,)
        Counter's name, then series.
    styles : mapping of str to Style
    ratio : str
        Ratio of all series.
    title : str
        Of the whole figure.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(quantities))
    rows = -(-len(quantities) // columns)
    figure = Figure(figsize=(WIDTH, 1.65 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, series) in zip(grid.flat, quantities.items(), strict=False):
        for label, values in series.items():
            axes.plot(range(len(values)), values, label=label, **styles[label].line)
        axes.set_title(counter(name).name, loc="left")
        cap(axes, counter(name).top)
        axes.xaxis.get_major_locator().set_params(integer=True)
    label_grid(grid, len(quantities), f"Layer (ratio {ratio})")
    shared_legend(figure)
    figure.suptitle(title, fontsize=9)
    return figure


def gate_histogram(gates: Mapping[str, Array], styles: Mapping[str, Style], ratio: str) -> "Figure":
    """How the mean gate of a layer and sample is distributed, for each method.

    Parameters
    ----------
    gates : mapping of str to array, (samples * layers,)
        In [0, 1].
    styles : mapping of str to Style
    ratio : str
        Ratio of all series.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * 0.72, 2.6), layout="constrained")
    axes = figure.subplots()
    edges = np.linspace(0, max(1.0, max(float(values.max()) for values in gates.values())), 41)
    for label, values in gates.items():
        share = np.histogram(values, edges)[0] / len(values)
        dash = styles[label].line["linestyle"]
        axes.stairs(100 * share, edges, label=label, color=styles[label].color, linestyle=dash, linewidth=1.5)
        axes.stairs(100 * share, edges, color=styles[label].color, alpha=0.12, fill=True)
    axes.set(
        xlabel=f"Mean gate of a layer (ratio {ratio})", ylabel="Share of samples and layers, %", xlim=(0, edges[-1])
    )
    figure.legend(loc="outside right center")
    return figure
