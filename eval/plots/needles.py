"""Heat map of the needle in a haystack: depth by length, a panel a row of the table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from eval.needle import Place, place_of
from eval.plots.heatmaps import HUE
from eval.plots.style import WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = 3  # side by side


def found(cells: pd.DataFrame) -> dict[int, dict[Place, float]]:
    """Mean score in points of each arm by place of the needle; places without a scored sample are left out.

    Parameters
    ----------
    cells : DataFrame
        See `eval.scores.frame`.
    """
    scored = cells[cells.state == "scored"]
    means = scored.groupby(["arm", scored.id.map(place_of)]).score.mean()
    by_arm: dict[int, dict[Place, float]] = {}
    for (arm, place), score in means.items():
        by_arm.setdefault(int(arm), {})[Place(*place)] = float(score)
    return by_arm


def heat_maps(panels: Mapping[str, Mapping[Place, float]]) -> "Figure":
    """Draw one panel a method and ratio: lengths along, depths down; white where nothing was scored.

    Parameters
    ----------
    panels : mapping of str to mapping of Place to float
        Scores in points by title.
    """
    from matplotlib.figure import Figure

    lengths = sorted({place.tokens for scores in panels.values() for place in scores})
    depths = sorted({place.depth for scores in panels.values() for place in scores})
    columns = min(PANELS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH, rows * (0.16 * len(depths) + 0.5) + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    image = None
    for panel, (title, scores) in zip(axes.flat, panels.items(), strict=False):
        image = panel.pcolormesh(_grid(scores, lengths, depths), cmap=HUE, vmin=0, vmax=100, edgecolors="white")
        panel.set_title(title, loc="left")
        panel.set_xticks(np.arange(len(lengths)) + 0.5, [str(length) for length in lengths])
        panel.set_yticks(np.arange(len(depths)) + 0.5, [f"{depth:g}" for depth in depths])
        panel.grid(False)
        panel.tick_params(length=0)
    axes[0, 0].invert_yaxis()  # shared by all: the start of the text on top
    for panel in axes.flat[len(panels) :]:
        panel.set_visible(False)
    figure.supxlabel("Length of the prompt, tokens", fontsize="medium")
    figure.supylabel("Depth of the needle, %", fontsize="medium")
    if image is not None:
        figure.colorbar(image, ax=axes, label="Score", pad=0.01)
    return figure


def _grid(scores: Mapping[Place, float], lengths: list[int], depths: list[float]) -> NDArray[np.float64]:
    """Scores as (depths, lengths); NaN where there is none."""
    return np.array([[scores.get(Place(length, depth), np.nan) for length in lengths] for depth in depths])
