"""Records: one JSON line a cell, keyed by everything that can change the prediction; appended and flushed.

``results/cells/<model>/<data>/<dataset>.jsonl`` holds the cells. An experiment folder is only a view on them: its
``manifest.json`` lists the keys.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from eval.typecheck import first_fault
from selkv.errors import UserError


class Fidelity(TypedDict, total=False):
    """What a record's `fidelity` holds."""

    kl: float
    agreement: float
    perplexity_ratio: float
    divergence: int | None
    attention_error: list[float]


class Positions(TypedDict):
    """What a record's `positions` holds."""

    n: int
    heads: int
    layers: list[str]


@dataclass(frozen=True)
class Record:
    """One cell: one sample, one method with its hyperparameters, one ratio.

    Attributes
    ----------
    key : str
        Hash of everything that can change the prediction.
    model, data, dataset, id, index
        Where the sample comes from; `index` is its position in the file.
    method, label : str
        Name of the method's YAML; the table's row name (method plus the hyperparameters of a grid).
    params : dict
        All hyperparameters.
    version : int
        The method's version.
    ratio : str
        Fraction of entries kept, as text (``0.25``, ``1/3``).
    prediction : str
        Raw generated text, special tokens removed, nothing stripped.
    question, answers, all_classes, length
        From the sample, so that scoring and reading need no other file.
    n : int
        Prompt tokens.
    generated : int
        Generated tokens.
    kept : list of int
        True entries of each layer, summed over its KV heads.
    total : list of int
        Entries of each layer in the full cache.
    exact : bool
        Whether the method meets the common budget exactly.
    counters : dict of str to list of float
        By name, one value a layer.
    kv_bytes : int
        Bytes of the kept keys, values and biases.
    batch_seconds, batch_rows
        Wall time and rows of the decode batch that held this cell; not a speed.
    seconds : float
        Wall time of all work on the sample, prefill included, divided by its cells: what a run's estimate is made of.
    fidelity : dict or None
        ``kl``, ``agreement``, ``perplexity_ratio`` (floats), ``divergence`` (int or None), ``attention_error`` (list of
        float, one a layer).
    looped : bool
        Whether the generated text ends in a repetition.
    positions : dict or None
        Kept prompt positions (`eval.kept.pack`), for one sample a run.
    error : str or None
        Traceback of a cell that failed; its prediction is then empty and it is never scored.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")  # a line of another version is told

    key: str
    model: str
    data: str
    dataset: str
    id: str
    index: int
    method: str
    label: str
    params: dict[str, Any]
    version: int
    ratio: str
    prediction: str
    question: str
    answers: list[str]
    all_classes: list[str] | None
    length: int
    n: int = 0
    generated: int = 0
    kept: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    exact: bool = True
    counters: dict[str, list[float]] = field(default_factory=dict)
    kv_bytes: int = 0
    batch_seconds: float = 0.0
    batch_rows: int = 1
    seconds: float = 0.0
    fidelity: Fidelity | None = None
    looped: bool = False
    positions: Positions | None = None
    error: str | None = None


_RECORD = TypeAdapter(Record)


def cell_key(parts: Mapping[str, Any]) -> str:
    """Hash of what identifies a cell: sha256 over canonical JSON, 24 hex digits."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def cells_file(results: Path, model: str, data: str, dataset: str) -> Path:
    """Path of the cells of one model, benchmark and dataset."""
    return results / "cells" / model / data / f"{dataset}.jsonl"


def read(path: Path) -> Iterator[Record]:
    """Records of a file, in order; a torn last line (killed while writing) is dropped.

    Raises
    ------
    UserError
        When the file cannot be read, or a line before the last is not a record.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror}); it must be a file of records") from None
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield _RECORD.validate_json(line, strict=True)
        except ValidationError as problem:
            if number == len(lines):  # no newline after it: it was being written
                return
            raise UserError(
                f"{path}:{number} is not a record ({first_fault(problem)}); remove that line to redo its cell"
            ) from None


def latest(records: Iterable[Record]) -> dict[str, Record]:
    """Records by key; of two with one key the later wins, but never an error over a result."""
    chosen: dict[str, Record] = {}
    for record in records:
        if record.error is None or record.key not in chosen or chosen[record.key].error is not None:
            chosen[record.key] = record
    return chosen


def line_of(record: Record) -> bytes:
    """The record as one JSON line, newline included."""
    return json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
