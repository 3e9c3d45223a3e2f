"""Plots of a run for papers: PNG and SVG, the same bytes for the same records. Needs matplotlib (extra `report`)."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eval.aggregate import FULL
from eval.kept import unpack
from eval.plots import bars, curves, heatmaps, layers, needles
from eval.plots.bars import Bar
from eval.plots.measures import (
    FIDELITY,
    Interval,
    Numbers,
    budgets,
    by_arm,
    fidelity,
    layer_values,
    name_of,
    ratio_of,
    scores,
)
from eval.plots.style import Style, house_style, save, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNEVEN = 0.01  # budgets whose layers differ by less come from rounding
Named = Iterator[tuple[str, "Figure"]]


def write_plots(of: Numbers, folder: Path) -> list[Path]:
    """Write every plot that the records can fill.

    Parameters
    ----------
    of : Numbers
        The run (`eval.plots.measures.numbers`).
    folder : Path
        Where ``<name>.png`` and ``<name>.svg`` go.

    Returns
    -------
    list of Path
        The files written.
    """
    chosen = styles(list(dict.fromkeys(arm["label"] for arm in of.arms)))
    with house_style():
        return [
            path
            for figures in (
                *(_sweeps(of, chosen), _differences(of, chosen), _by_layer(of, chosen)),
                *(_positions(of), _needles(of)),
            )
            for name, figure in figures
            for path in save(figure, folder, name)
        ]


def _sweeps(of: Numbers, chosen: dict[str, Style]) -> Named:
    if len({ratio_of(arm) for arm in of.arms if arm["method"] != FULL}) < 2:
        return
    average = scores(of, of.tasks)
    yield (
        "score_by_ratio",
        curves.curves(_points(of, average), chosen, "Score, mean over tasks", _full(of, average), 100),
    )
    by_category = {name: scores(of, tasks) for name, tasks in of.categories.items()}
    if len(by_category) > 1:
        panels = {name: _points(of, values) for name, values in by_category.items()}
        references = {name: _full(of, values) for name, values in by_category.items()}
        yield "score_by_category", curves.multiples(panels, chosen, "Score", references, 100)
    for measure in FIDELITY:
        points = _points(of, fidelity(of, measure))
        if points:
            yield f"{measure.key}_by_ratio", curves.curves(points, chosen, measure.name, top=measure.top)


def _points(of: Numbers, values: Sequence[Interval | None]) -> dict[str, list[tuple[float, Interval]]]:
    found: dict[str, list[tuple[float, Interval]]] = {}
    for arm, interval in zip(of.arms, values, strict=True):
        if interval is not None and arm["method"] != FULL:
            found.setdefault(arm["label"], []).append((ratio_of(arm), interval))
    return {label: sorted(points) for label, points in found.items()}


def _full(of: Numbers, values: Sequence[Interval | None]) -> Interval | None:
    return None if of.full is None else values[of.full]


def _differences(of: Numbers, chosen: dict[str, Style]) -> Named:
    for against in ("full", "baseline"):
        panels = {
            table.ratio: [
                Bar(row.label, row.label, pair.delta, pair.low, pair.high, pair.adjusted < 0.05)
                for row in table.rows
                if (pair := getattr(row, f"versus_{against}")) is not None and not np.isnan(pair.delta)
            ]
            for table in of.tables
        }
        panels = {ratio: found for ratio, found in panels.items() if found}
        if panels:
            reference = "the full cache" if against == "full" else of.tables[0].baseline
            yield f"difference_to_{against}", bars.differences(panels, chosen, reference)


def _by_layer(of: Numbers, chosen: dict[str, Style]) -> Named:
    records = by_arm(of.view)
    shares = {
        name_of(arm): share
        for arm, share in zip(of.arms, budgets(records), strict=True)
        if share is not None and np.ptp(share) > UNEVEN and arm["method"] != FULL
    }
    if shares:
        yield "budget_by_layer", heatmaps.budget(shares)
    table = of.tables[0]  # the lowest ratio, where methods differ most; the report shows all
    members = {row.label: row.arm for row in table.rows if row.method != FULL}
    values = layer_values(records)
    quantities = {
        name: {label: v for label, arm in members.items() if (v := arms[arm]) is not None}
        for name, arms in values.items()
    }
    quantities = {name: series for name, series in quantities.items() if series}
    if quantities:
        yield "layers", layers.by_layer(quantities, chosen, table.ratio, _of_ratio(of, "Means by layer"))
    gates = {
        label: [g for r in records[arm] for g in r.counters.get("mean_gate", ())] for label, arm in members.items()
    }
    found = {label: np.array(gate) for label, gate in gates.items() if gate}
    if found:
        yield "gate_histogram", layers.gate_histogram(found, chosen, table.ratio)


def _of_ratio(of: Numbers, what: str) -> str:
    """Title of a figure that shows the lowest ratio, and says so where there are more."""
    ratios = [table.ratio for table in of.tables]
    others = f" (the lowest; report.html shows {', '.join(ratios[1:])}, too)" if len(ratios) > 1 else ""
    return f"{what} at ratio {ratios[0]}{others}"


def _positions(of: Numbers) -> Named:
    """Kept positions of the first traced sample at the lowest ratio that has them."""
    traced = sorted(
        (record for record in of.view.records.values() if record.positions is not None and record.method != "full"),
        key=lambda record: (Fraction(record.ratio), record.dataset, record.index, record.label),
    )
    shared = [(record.ratio, record.dataset, record.index) for record in traced]
    chosen = {record.label: record for record, own in zip(traced, shared, strict=True) if own == shared[0]}
    if chosen:
        title = f"Positions that are kept of sample {traced[0].id} ({traced[0].dataset}), ratio {traced[0].ratio}"
        kept = {arm["label"]: unpack(chosen[arm["label"]].positions or {}) for arm in of.arms if arm["label"] in chosen}
        yield "kept_positions", heatmaps.kept_positions(kept, traced[0].n, title)


def _needles(of: Numbers) -> Named:
    """Needle in a haystack alone: all rows of the table."""
    found = needles.found(of.cells) if of.view.manifest["data"] == "needle" else {}
    if found:
        yield "needles", needles.heat_maps({name_of(of.arms[arm]): scores for arm, scores in found.items()})
