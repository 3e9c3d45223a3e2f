"""What became of a cell, and its record."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from eval.arms import Arm
from eval.cells import Unit
from eval.kept import pack
from eval.records import Fidelity, Record
from selkv.fidelity import loops
from selkv.method import Method, hyperparameters
from selkv.prefill import Prefill
from selkv.state import Kept


class Cell(NamedTuple):
    """A cell in work: its arm, what it keeps a layer, what it generated, and the batch that it was in."""

    arm: int
    summary: Sequence[Kept] = ()
    text: Sequence[int] = ()
    seconds: float = 0.0
    rows: int = 1
    fidelity: dict[str, Any] | None = None
    error: str | None = None


def record_of(
    unit: Unit,
    cell: Cell,
    arm: Arm,
    method: Method,
    place: Mapping[str, str],
    prediction: str = "",
    state: Prefill | None = None,
    seconds: float = 0.0,
) -> Record:
    """Record of a cell.

    Parameters
    ----------
    unit : Unit
    cell : Cell
    arm : Arm
    method : Method
    place : mapping
        ``model`` and ``data``: names of the folders.
    prediction : str
        The generated text.
    state : Prefill, optional
        None where prefill failed.
    seconds : float
        The cell's share of the time that its sample took.
    """
    sample, layers = unit.sample, [] if state is None else list(state.layers)
    return Record(
        key=unit.keys[cell.arm],
        model=place["model"],
        data=place["data"],
        dataset=unit.dataset,
        id=sample.id,
        index=sample.index,
        method=arm.method,
        label=arm.label,
        params=hyperparameters(method),
        version=method.version,
        ratio=arm.ratio_text,
        prediction=prediction,
        question=sample.input,
        answers=list(sample.answers),
        all_classes=None if sample.all_classes is None else list(sample.all_classes),
        length=sample.length,
        n=0 if state is None else state.n,
        generated=len(cell.text),
        kept=[kept.entries for kept in cell.summary],
        total=[layer.kv_heads * layer.n for layer in layers],
        exact=method.exact,
        counters=_by_layer(cell.summary),
        kv_bytes=_kv_bytes(cell.summary, layers),
        batch_seconds=round(cell.seconds, 4),
        batch_rows=cell.rows,
        seconds=round(seconds, 4),
        fidelity=cast(Fidelity | None, cell.fidelity),
        looped=loops(cell.text),
        positions=pack([kept.positions.numpy(force=True) for kept in cell.summary], state.n)
        if unit.traced and state is not None and cell.error is None
        else None,
        error=cell.error,
    )


def _by_layer(summary: Sequence[Kept]) -> dict[str, list[float]]:
    """Counters by name, one value a layer."""
    names = sorted({name for kept in summary for name in kept.counters})
    return {name: [round(kept.counters.get(name, 0.0), 6) for kept in summary] for name in names}


def _kv_bytes(summary: Sequence[Kept], layers: Sequence[Any]) -> int:
    """Bytes of the true entries: keys, values, and a bias where one is not zero."""
    total = 0
    for kept, layer in zip(summary, layers, strict=False):
        size = layer.keys.element_size()
        biased = bool(kept.bias.masked_fill(kept.positions < 0, 0).any())
        total += kept.entries * (2 * layer.keys.shape[2] * size + size * biased)
    return total
