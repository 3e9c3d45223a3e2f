"""What a run shows, in sentences: what is a difference and what may be noise."""

from collections.abc import Iterable

import numpy as np

from eval.aggregate import FULL, Row, Table
from eval.plots.measures import Numbers, name_of

SIGNIFICANT = 0.05
LOOPS = 0.05  # share of outputs that end in a repetition, above which it is worth a sentence


def findings(of: Numbers) -> list[str]:
    """Sentences for the summary, one a ratio, then one on repetition."""
    return [*(sentence for table in of.tables for sentence in _ratio(table)), *_loops(of)]


def _ratio(table: Table) -> Iterable[str]:
    rows = [row for row in table.rows if row.method != FULL and not np.isnan(row.average)]
    if not rows:
        return
    best = max(rows, key=lambda row: row.average)
    yield " ".join(
        [f"Ratio {table.ratio}: {best.label} has the best average, {best.average:.2f}{_to_full(best)}.", *_noise(rows)]
    )


def _to_full(row: Row) -> str:
    pair = row.versus_full
    if pair is None or np.isnan(row.delta):
        return ""
    ends = "" if np.isnan(pair.low) else f" [{_signed(pair.low)}, {_signed(pair.high)}]"
    return f" ({_signed(row.delta)}{ends} to full)"


def _noise(rows: list[Row]) -> Iterable[str]:
    pairs = {row.label: row.versus_full for row in rows if row.versus_full and not np.isnan(row.versus_full.adjusted)}
    if not pairs:
        return
    differ = [label for label, pair in pairs.items() if pair.adjusted < SIGNIFICANT]
    if differ:
        yield f"{len(differ)} of {len(pairs)} differ from the full cache beyond noise: {', '.join(differ)}."
    else:
        yield f"None of {len(pairs)} differs from the full cache beyond noise."
    sizes = [pair.detectable for pair in pairs.values() if not np.isnan(pair.detectable)]
    if sizes:
        yield f"These samples can detect differences from about {np.median(sizes):.1f} points."


def _loops(of: Numbers) -> Iterable[str]:
    scored = of.cells[of.cells.state == "scored"]
    share = scored.groupby("arm", sort=True).looped.mean()
    worst = [f"{name_of(of.arms[arm])} ({100 * value:.0f} %)" for arm, value in share.items() if value > LOOPS]
    if worst:
        yield f"Outputs that end in a repetition: {', '.join(worst)}."


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
