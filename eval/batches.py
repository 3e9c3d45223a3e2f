"""Which cells decode together: rows sorted by length are cut where reading padding would cost more than the weights."""

from collections.abc import Sequence


def plan_batches(sizes: Sequence[int], fixed: int, limit: int) -> list[list[int]]:
    """Partition rows into batches with the least bytes read per decode step.

    A step of a batch reads the weights once and, for every row, as many K/V bytes as its longest row has.

    Parameters
    ----------
    sizes : sequence of int
        K/V bytes of each row.
    fixed : int
        Bytes that a step reads whatever the number of rows (the weights).
    limit : int
        Most K/V bytes of a batch, padding included; a row that alone exceeds it is a batch of its own.

    Returns
    -------
    list of list of int
        Row indices of each batch, shortest rows first; ties keep their order.
    """
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    best: list[tuple[int, int]] = [(0, 0)]  # least bytes for the first k rows, and where their last batch starts
    for stop in range(1, len(order) + 1):
        longest = sizes[order[stop - 1]]
        starts = [s for s in range(stop) if (stop - s) * longest <= limit] or [stop - 1]
        best.append(min((best[s][0] + fixed + (stop - s) * longest, s) for s in starts))
    batches, stop = [], len(order)
    while stop:
        start = best[stop][1]
        batches.append(order[start:stop])
        stop = start
    return batches[::-1]
