"""LongBench's JSON lines into samples; whatever is wrong is told with file and line, nothing is repaired.

White space and CRLF inside the texts stay as they are: contexts end with newlines on purpose.
"""

import json
from typing import Any, NoReturn

from eval.sample import Sample
from eval.tasks import base_name
from selkv.errors import UserError

FIX = "Take the file from LongBench's data.zip again"

_TEXT_FIELDS = ("input", "context", "dataset", "language")
_FIELDS = ("input", "context", "answers", "length", "dataset", "language", "all_classes", "_id")
_CLASSES = ("trec", "lsht")


def parse(data: bytes, dataset: str, origin: str) -> tuple[Sample, ...]:
    """Rows of one file, in file order.

    Parameters
    ----------
    data : bytes
        The file: one JSON object a line, UTF-8.
    dataset : str
        Name that each row must carry, with ``_e`` for LongBench-E.
    origin : str
        How errors name the file.

    Raises
    ------
    UserError
        One line that starts with ``<origin>:<line>:``.
    """
    if not data.strip():
        _bad(origin, 1, "the file is empty")
    if data.startswith(b"version https://git-lfs"):
        _bad(origin, 1, "this is a Git LFS pointer, not the data", "Run `git lfs pull` there, or take data.zip")
    # Only "\n" ends a line: str.splitlines would also cut at U+2028 and others, which occur inside texts.
    lines = data.split(b"\n")
    samples: list[Sample] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _decode(line, origin, number, last=number == len(lines))
        _check(row, dataset, origin, number)
        if row["_id"] is not None and seen.setdefault(row["_id"], number) != number:
            _bad(origin, number, f"duplicate _id {row['_id']!r}, first seen on line {seen[row['_id']]}")
        samples.append(_sample(row, len(samples)))
    return tuple(samples)


def _decode(line: bytes, origin: str, number: int, last: bool) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except ValueError as error:
        # A complete file ends with a newline, so broken text after the last one was cut off.
        if last:
            _bad(origin, number, f"truncated last line ({len(line)} bytes, no newline at the end)")
        if isinstance(error, UnicodeDecodeError):
            _bad(origin, number, f"not UTF-8 at byte {error.start} of the line")
        _bad(origin, number, f"not a JSON object: {error}")


def _check(row: Any, dataset: str, origin: str, number: int) -> None:
    if not isinstance(row, dict):
        _bad(origin, number, f"a row must be a JSON object, not {type(row).__name__}")
    if formatted := [name for name in ("question", "answer_prefix") if name in row]:
        _bad(
            origin,
            number,
            f"pre-formatted mirror (field {', '.join(formatted)}): its texts already hold the instructions, so the "
            "prompts would carry them twice",
            "Use the original rows: LongBench's data.zip",
        )
    if missing := [name for name in _FIELDS if name not in row]:
        _bad(origin, number, f"missing field {', '.join(missing)}")
    for name in _TEXT_FIELDS:
        if not isinstance(row[name], str):
            _wrong_field(row, name, "a string", origin, number)
    if type(row["length"]) is not int or row["length"] < 0:
        _wrong_field(row, "length", "a whole number", origin, number)
    if not row["answers"] or not _strings(row["answers"]):
        _wrong_field(row, "answers", "a list of at least one string", origin, number)
    if base_name(dataset) in _CLASSES:
        if not row["all_classes"] or not _strings(row["all_classes"]):
            _wrong_field(row, "all_classes", "a list of class names", origin, number)
    elif row["all_classes"] is not None:
        _wrong_field(row, "all_classes", "null (only trec and lsht have classes)", origin, number)
    if not isinstance(row["_id"], str | None):
        _wrong_field(row, "_id", "a string or null", origin, number)
    if row["dataset"] != dataset:
        _wrong_field(row, "dataset", repr(dataset), origin, number)


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _wrong_field(row: dict[str, Any], name: str, wanted: str, origin: str, number: int) -> NoReturn:
    value = json.dumps(row[name], ensure_ascii=False)
    shown = value if len(value) <= 60 else f"{value[:57]}..."
    _bad(origin, number, f"field {name} must be {wanted}, not {shown}")


def _bad(origin: str, number: int, what: str, fix: str = FIX) -> NoReturn:
    raise UserError(f"{origin}:{number}: {what}. {fix}.")


def _sample(row: dict[str, Any], index: int) -> Sample:
    return Sample(
        id=row["_id"] if row["_id"] is not None else f"{row['dataset']}-{index}",
        dataset=row["dataset"],
        input=row["input"],
        context=row["context"],
        answers=tuple(row["answers"]),
        length=row["length"],
        language=row["language"],
        all_classes=None if row["all_classes"] is None else tuple(row["all_classes"]),
        index=index,
    )
