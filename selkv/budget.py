"""Budgets in exact arithmetic: floats are off by one (floor(0.29 * 100) is 28, int(1000 * (1 - 0.9)) is 99)."""

from collections.abc import Sequence
from fractions import Fraction

from selkv.errors import UserError


def parse_ratio(value: object) -> Fraction:
    """The exact fraction of entries to keep behind a number or text: ``0.1`` is 1/10, not the float next to it.

    Parameters
    ----------
    value : object
        A number, its text (``0.25``, ``1/3``, ``1``), or a fraction.

    Raises
    ------
    UserError
        Where it is no number in (0, 1].
    """
    try:
        ratio = Fraction(str(value))  # the text of a truth value is no number
    except (ValueError, ZeroDivisionError):
        ratio = Fraction(0)
    if not 0 < ratio <= 1:
        raise UserError(
            f"ratio={value} is not a number in (0, 1]: the share of entries kept, e.g. ratio=0.25 or ratio=1/3"
        )
    return ratio


def kept_per_head(n: int, ratio: Fraction) -> int:
    """Entries kept of n: m = max(1, floor(ratio * n)) in exact arithmetic."""
    return max(1, n * ratio.numerator // ratio.denominator)


def apportion(weights: Sequence[float], total: int, cap: Sequence[int]) -> list[int]:
    """Share `total` whole entries in proportion to the weights, none above its cap.

    Real shares are clamped to the cap and the excess goes to the unclamped ones; then floors, and what remains by
    largest remainder (ties: lower index first). Computed with fractions, so the sum is exact.

    Parameters
    ----------
    weights : sequence of float
        Non-negative; where all unclamped weights are 0 the rest is shared equally.
    total : int
        Entries to hand out.
    cap : sequence of int
        Most entries of each.

    Returns
    -------
    list of int
        Sums to `total`.

    Raises
    ------
    ValueError
        When the caps cannot hold the total.
    """
    if total > sum(cap):
        raise ValueError(f"{total} entries do not fit caps that sum to {sum(cap)}")
    exact = [Fraction(w) for w in weights]
    share = [Fraction(0)] * len(exact)
    open_ = list(range(len(exact)))
    left = Fraction(total)
    while open_:
        mass = sum((exact[i] for i in open_), Fraction(0))
        for i in open_:
            share[i] = left * exact[i] / mass if mass else left / len(open_)
        full = [i for i in open_ if share[i] > cap[i]]
        if not full:
            break
        for i in full:
            share[i] = Fraction(cap[i])
            left -= cap[i]
        open_ = [i for i in open_ if i not in full]
    whole = [int(s) for s in share]
    # a stable sort keeps the lower index first among equal remainders
    order = sorted((i for i in range(len(exact)) if whole[i] < cap[i]), key=lambda i: whole[i] - share[i])
    for i in order[: total - sum(whole)]:
        whole[i] += 1
    return whole
