"""What a reader of a table should know of its rows, from the records' counters."""

from collections.abc import Iterator

from eval.records import Record
from eval.view import View

LOST_FIRST = 0.05  # share of the window's attention that position 0 may lose unnoticed


def alerts(view: View) -> list[str]:
    """One line for each row of a run that merges nothing, loses its attention sink, loops, or failed.

    Parameters
    ----------
    view : View
    """
    return [line for arm in range(len(view.manifest["arms"])) for line in _of_arm(view, arm)]


def _of_arm(view: View, arm: int) -> Iterator[str]:
    entry = view.manifest["arms"][arm]
    name = f"{entry['label']} at {entry['ratio']}"
    records = [r for r in (view.records.get(row[arm]) for rows in view.manifest["cells"].values() for row in rows) if r]
    good = [record for record in records if record.error is None]
    routed = _values(good, "routed")
    if routed and max(routed) == 0:
        yield f"{name}: nothing was routed, so nothing was merged: it is plain eviction here"
    lost = _values(good, "evicted_first_share")
    if lost and sum(lost) / len(lost) > LOST_FIRST:
        yield (
            f"{name}: position 0 is evicted with {sum(lost) / len(lost):.0%} of the window's attention (layer mean); "
            "its sinks option keeps it"
        )
    looped = sum(record.looped for record in good)
    if looped * 10 > len(good):
        yield f"{name}: {looped} of {len(good)} outputs end in a loop"
    if len(good) < len(records):
        yield f"{name}: {len(records) - len(good)} cells failed; their records hold the traceback"


def _values(records: list[Record], counter: str) -> list[float]:
    """A counter over all records and layers."""
    return [value for record in records for value in record.counters.get(counter, ())]
