"""The paper's Figure 3: wall-clock, decode throughput and the share of compression against prompt length."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eval.efficiency.rows import Row
from eval.plots.curves import shared_legend
from eval.plots.style import GREY, WIDTH, house_style, save, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("total", "Seconds, prompt to last token", "log"),
    ("tokens_per_s", "Decoded tokens a second", "log"),
    ("compress_share", "Compression, % of the total", "linear"),
)
PROMISED = 5  # % of the total at 8k tokens and more, the paper's claim


def draw(rows: Sequence[Row]) -> "Figure":
    """Three panels, one line a method and ratio."""
    from matplotlib.figure import Figure

    labels = {row: row.method if row.method == "full" else f"{row.method} {row.ratio}" for row in rows}
    series = list(dict.fromkeys(labels.values()))
    looks = styles(series)
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    for axes, (field, title, scale) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for label in series:
            own = [row for row in rows if labels[row] == label]
            values = [getattr(row, field) * (100 if scale == "linear" else 1) for row in own]
            axes.plot([row.n for row in own], values, label=label, **looks[label].line)
        axes.set(title=title, xlabel="Prompt tokens", xscale="log", yscale=scale)
        if scale == "linear":
            axes.axhline(PROMISED, color=GREY, linestyle=":")
            axes.set_ylim(bottom=0)
    shared_legend(figure)
    return figure


def plot(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write ``efficiency.png`` and ``efficiency.svg``."""
    with house_style():
        return save(draw(rows), folder, "efficiency")
