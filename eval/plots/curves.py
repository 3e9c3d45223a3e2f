"""Curves: a measure against the share of the cache that is kept, for each method, with bands; small multiples."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval.plots.measures import Interval
from eval.plots.style import WIDTH, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Points = Mapping[str, Sequence[tuple[float, Interval]]]  # (ratio, interval) of each series, ascending


def curves(
    points: Points,
    styles: Mapping[str, Style],
    ylabel: str,
    reference: Interval | None = None,
    top: float | None = None,
) -> "Figure":
    """One panel.

    Parameters
    ----------
    points : mapping of str to sequence of (float, Interval)
        Ratio and interval of each series.
    styles : mapping of str to Style
    ylabel : str
    reference : Interval, optional
        The full cache's, drawn across.
    top : float, optional
        What the measure cannot exceed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * 0.72, 3.1), layout="constrained")
    axes = figure.subplots()
    draw(axes, points, styles, reference)
    cap(axes, top)
    axes.set(xlabel="Share of the cache that is kept", ylabel=ylabel)
    figure.legend(loc="outside right center")
    return figure


def multiples(
    panels: Mapping[str, Points],
    styles: Mapping[str, Style],
    ylabel: str,
    references: Mapping[str, Interval | None],
    top: float | None = None,
) -> "Figure":
    """One small panel a category, three in a row, with a legend below."""
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, 1.75 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axes, (title, points) in zip(grid.flat, panels.items(), strict=False):
        draw(axes, points, styles, references.get(title))
        cap(axes, top)
        axes.set_title(title, loc="left")
    label_grid(grid, len(panels), "Share of the cache that is kept", ylabel)
    shared_legend(figure)
    return figure


def label_grid(grid: "NDArray[Any]", panels: int, xlabel: str, ylabel: str = "") -> None:
    """Labels at the outer panels only: on the left, and where no panel is below; empty places are cleared."""
    columns = grid.shape[1]
    for place, axes in enumerate(grid.flat):
        if place >= panels:
            axes.set_axis_off()
        elif place + columns >= panels:
            axes.set_xlabel(xlabel)
            axes.tick_params(labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_ylabel(ylabel)


def shared_legend(figure: "Figure") -> None:
    """One legend below all panels, each series once."""
    pairs = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs)}
    names = list(dict.fromkeys(label for _, label in pairs))
    columns = -(-len(names) // -(-len(names) // 6))  # rows of equal length, six at most
    figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=columns)


def cap(axes: "Axes", top: float | None) -> None:
    """End the axis at 0 and at the value that a measure cannot exceed; what lies on either end stays whole."""
    low, high = axes.get_ylim()
    if low < 0 <= axes.dataLim.y0:
        axes.set_ylim(bottom=0)
    if top is not None and high > top >= axes.dataLim.y1:
        axes.set_ylim(top=top)
    for line in axes.lines:
        line.set_clip_on(False)


def draw(axes: "Axes", points: Points, styles: Mapping[str, Style], reference: Interval | None) -> None:
    """Lines with bands; a dashed line with a band for the full cache."""
    if reference is not None:
        color = styles["full"].color
        axes.axhspan(reference.low, reference.high, color=color, alpha=0.08, linewidth=0)
        axes.axhline(reference.mean, color=color, linestyle=(0, (6, 3)), linewidth=1.1, label="full")
    for label, series in points.items():
        ratios = [ratio for ratio, _ in series]
        style = styles[label]
        axes.plot(ratios, [interval.mean for _, interval in series], label=label, **style.line)
        low, high = ([interval[side] for _, interval in series] for side in (1, 2))
        axes.fill_between(ratios, low, high, color=style.color, alpha=0.13, linewidth=0)
