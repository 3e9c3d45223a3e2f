"""What a run shows, in sentences: what is a difference and what may be noise."""

from collections.abc import Iterable, Sequence

import numpy as np

from eval.aggregate import FULL, Row, Table
from eval.grid import number
from eval.plots.measures import Numbers, name_of
from eval.statistics import Comparison

SIGNIFICANT = 0.05
POINTS = 100  # the largest difference that there is
LOOPS = 0.05  # share of outputs that end in a repetition, above which it is worth a sentence


def findings(of: Numbers) -> list[str]:
    """Sentences for the summary, one a ratio, then on the run as a whole."""
    return [*(line for table in of.tables for line in _ratio(of, table)), *_detectable(of.tables), *_loops(of)]


def identical(of: Numbers, arm: int) -> bool:
    """Whether an arm wrote the full cache's texts, all of them."""
    if of.full in (None, arm):
        return False
    rows = [row for rows in of.view.manifest["cells"].values() for row in rows]
    pairs = [(of.view.records.get(row[arm]), of.view.records.get(row[of.full])) for row in rows]
    both = [(own, full) for own, full in pairs if own and full and own.error is None and full.error is None]
    return bool(both) and all(own.prediction == full.prediction for own, full in both)


def _ratio(of: Numbers, table: Table) -> Iterable[str]:
    rows = [row for row in table.rows if row.method != FULL and not np.isnan(row.average)]
    if rows:
        best = max(rows, key=lambda row: row.average)
        tied = [row for row in rows if row.average == best.average]
        who = f"{best.label} has" if len(tied) == 1 else f"{', '.join(row.label for row in tied)} share"
        same = all(identical(of, row.arm) for row in tied)
        first = f"Ratio {table.ratio}: {who} the best average, {best.average:.2f}{_to_full(best, same)}."
        yield f"{first} {_noise(rows)}".rstrip()


def _to_full(row: Row, same: bool) -> str:
    pair = row.versus_full
    if same:
        return " (texts identical to full)"
    if pair is None or np.isnan(row.delta):
        return ""
    if pair.ties == pair.samples:
        return " (every score identical to full)"
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
    """What a difference must measure to be found; methods that equal the full cache in every score say nothing."""
    blocks = [[row.versus_full for row in table.rows if row.versus_full] for table in tables]
    pairs = [(pair, len(block)) for block in blocks for pair in block if pair.ties < pair.samples]
    sizes = [pair.detectable for pair, methods in pairs if _can_show(pair, methods)]
    if sizes:
        low, high = f"{min(sizes):.1f}", f"{max(sizes):.1f}"
        size = low if low == high else f"{low} to {high}"
        yield f"A true difference of {size} points would be found with probability 0.8 on this many samples."
    if len(sizes) < len(pairs):
        some = f" of {len(pairs) - len(sizes)} of {len(pairs)} comparisons" if sizes else ""
        yield f"These few samples cannot show any difference{some}: add samples before you compare."


def _can_show(pair: Comparison, methods: int) -> bool:
    """Whether a score can differ by as much as has to be, and the permutation test reach significance after Holm."""
    least = methods * 2 / 2**pair.samples  # p of a difference that has the same sign on all samples
    return pair.detectable <= POINTS and least < SIGNIFICANT


def _loops(of: Numbers) -> Iterable[str]:
    scored = of.cells[of.cells.state == "scored"]
    share = scored.groupby("arm", sort=True).looped.mean()
    worst = [f"{name_of(of.arms[arm])} ({100 * value:.0f} %)" for arm, value in share.items() if value > LOOPS]
    if worst:
        yield f"Outputs that end in a repetition: {', '.join(worst)}."


def _signed(value: float) -> str:
    return number(value, sign=True).replace("-", "\N{MINUS SIGN}")
