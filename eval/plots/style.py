"""How every plot looks: colours that colour-blind readers can tell apart, markers and dashes for print in grey.

Palette: Okabe and Ito (2008), Color Universal Design. The full cache is drawn in the colour of the text.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE, YELLOW = PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#B8A800",  # Okabe and Ito's yellow (#F0E442), darkened: lines of it vanish on white paper
)
INK, GREY = "#1B1D22", "#8A8F98"
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("", "6 3", "2 2", "8 3 2 3")  # SVG's notation, in points
WIDTH = 6.9  # inches: the text width of a two-column page


class Style(NamedTuple):
    """Colour, marker and dashes of a series; `hollow` markers start when the colours repeat."""

    color: str
    marker: str
    dash: str
    hollow: bool = False

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of matplotlib's ``plot``."""
        dash = (0, tuple(map(float, self.dash.split()))) if self.dash else "-"
        face = "white" if self.hollow else self.color
        return {"color": self.color, "marker": self.marker, "linestyle": dash, "markerfacecolor": face}


FULL = Style(INK, "o", "")


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """Style of each series; colours, markers and dashes turn at different paces, so no two series look alike.

    Parameters
    ----------
    labels : sequence of str
        In table order; ``full`` gets the colour of the text.
    """
    others = [label for label in labels if label != "full"]
    chosen = {"full": FULL} if "full" in labels else {}
    for index, label in enumerate(others):
        turn = index // len(PALETTE)
        chosen[label] = Style(
            PALETTE[index % len(PALETTE)],
            MARKERS[index % len(MARKERS)],
            DASHES[(index + turn) % len(DASHES)],
            hollow=turn % 2 == 1,
        )
    return {label: chosen[label] for label in labels}


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib without a screen, in the style of a paper; the caller's settings come back afterwards."""
    import matplotlib

    with matplotlib.rc_context(
        {
            "font.family": "DejaVu Sans",  # ships with matplotlib, so that every machine writes the same bytes
            "font.size": 8,
            "axes.titlesize": 8.5,
            "axes.titleweight": "bold",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": GREY,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#E4E6EA",
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.5,
            "lines.markersize": 4.5,
            "legend.frameon": False,
            "figure.dpi": 100,
            "savefig.dpi": 200,
            "svg.hashsalt": "selkv",
            "svg.fonttype": "path",
        }
    ):
        yield


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, with the same bytes for the same numbers."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(paths[0], metadata={"Software": None}, bbox_inches="tight")
    figure.savefig(paths[1], metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    return paths
