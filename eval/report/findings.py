"""What a run shows, in sentences: what is a difference and what may be noise."""

from collections.abc import Iterable, Sequence

import numpy as np

from eval.aggregate import FULL, Row, Table
from eval.plots.measures import Numbers, name_of

SIGNIFICANT = 0.05
LOOPS = 0.05  # share of outputs that end in a repetition, above which it is worth a sentence


def findings(of: Numbers) -> list[str]:
    """Sentences for the summary, one a ratio, then on the run as a whole."""
    return [*(line for table in of.tables for line in _ratio(table)), *_detectable(of.tables), *_loops(of)]


def _ratio(table: Table) -> Iterable[str]:
    rows = [row for row in table.rows if row.method != FULL and not np.isnan(row.average)]
    if rows:
        best = max(rows, key=lambda row: row.average)
        tied = [row.label for row in rows if row.average == best.average]
        who = f"{best.label} has" if len(tied) == 1 else f"{', '.join(tied)} share"
        first = f"Ratio {table.ratio}: {who} the best average, {best.average:.2f}{_to_full(best)}."
        yield f"{first} {_noise(rows)}".rstrip()


def _to_full(row: Row) -> str:
    pair = row.versus_full
    if pair is None or np.isnan(row.delta):
        return ""
    ends = "" if np.isnan(pair.low) else f" [{_signed(pair.low)}, {_signed(pair.high)}]"
    return f" ({_signed(row.delta)}{ends} to full)"


def _noise(rows: Sequence[Row]) -> str:
    pairs = {row.label: row.versus_full for row in rows if row.versus_full and not np.isnan(row.versus_full.adjusted)}
    differ = [label for label, pair in pairs.items() if pair.adjusted < SIGNIFICANT]
    if not pairs:
        return ""
    if not differ:
        return f"None of {len(pairs)} methods differs from the full cache beyond noise."
    return f"{len(differ)} of {len(pairs)} methods differ from the full cache beyond noise: {', '.join(differ)}."


def _detectable(tables: Sequence[Table]) -> Iterable[str]:
    pairs = [row.versus_full for table in tables for row in table.rows if row.versus_full]
    sizes = [pair.detectable for pair in pairs if not np.isnan(pair.detectable)]
    if sizes:
        low, high = f"{min(sizes):.1f}", f"{max(sizes):.1f}"
        size = low if low == high else f"{low} to {high}"
        yield f"A true difference of {size} points would be found with probability 0.8 on this many samples."


def _loops(of: Numbers) -> Iterable[str]:
    scored = of.cells[of.cells.state == "scored"]
    share = scored.groupby("arm", sort=True).looped.mean()
    worst = [f"{name_of(of.arms[arm])} ({100 * value:.0f} %)" for arm, value in share.items() if value > LOOPS]
    if worst:
        yield f"Outputs that end in a repetition: {', '.join(worst)}."


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
