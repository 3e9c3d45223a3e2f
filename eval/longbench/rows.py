"""LongBench's JSON lines into samples; whatever is wrong is told with file and line, nothing is repaired.

White space and CRLF inside the texts stay as they are: contexts end with newlines on purpose.
"""

import json
from typing import Any, NoReturn

from eval.sample import Sample
from eval.scoring import gold_fault
from eval.tasks import base_name
from eval.typecheck import whole_text
from selkv.errors import UserError

OFFICIAL = "Take the file from LongBench's data.zip again"
OWN = (
    "Correct that row: a line is one JSON object with input, context, dataset, language (texts), answers (a list of "
    "texts), length (a whole number), all_classes (null but for trec and lsht) and _id (a text or null)"
)

_TEXT_FIELDS = ("input", "context", "dataset", "language")
_FIELDS = ("input", "context", "answers", "length", "dataset", "language", "all_classes", "_id")
_CLASSES = ("trec", "lsht")


class _Bad(Exception):
    """What is wrong with a line, and a fix of its own where there is one."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def parse(data: bytes, dataset: str, origin: str, fix: str = OFFICIAL) -> tuple[Sample, ...]:
    """Rows of one file, in file order.

    Parameters
    ----------
    data : bytes
        The file: one JSON object a line, UTF-8.
    dataset : str
        Name that each row must carry, with ``_e`` for LongBench-E.
    origin : str
        How errors name the file.
    fix : str
        What errors advise: another one for the user's own rows than for LongBench's.

    Raises
    ------
    UserError
        One line that starts with ``<origin>:<line>:``.
    """
    # Only "\n" ends a line: str.splitlines would also cut at U+2028 and others, which occur inside texts.
    lines = data.split(b"\n")
    samples: list[Sample] = []
    seen: dict[str, int] = {}
    number = 1
    try:
        _refuse_no_data(data)
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = _decode(line, last=number == len(lines))
                _check(row, dataset)
                if row["_id"] is not None and seen.setdefault(row["_id"], number) != number:
                    raise _Bad(f"duplicate _id {row['_id']!r}, first seen on line {seen[row['_id']]}")
                samples.append(_sample(row, len(samples)))
    except _Bad as bad:
        raise UserError(f"{origin}:{number}: {bad.what}. {bad.fix or fix}.") from None
    return tuple(samples)


def _refuse_no_data(data: bytes) -> None:
    if not data.strip():
        raise _Bad("the file is empty")
    if data.startswith(b"version https://git-lfs"):
        raise _Bad("this is a Git LFS pointer, not the data", "Run `git lfs pull` there, or take data.zip")


def _decode(line: bytes, last: bool) -> Any:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # A complete file ends with a newline, so broken text after the last one was cut off.
        if last:
            raise _Bad(f"truncated last line ({len(line)} bytes, no newline at the end)") from None
        if isinstance(error, UnicodeDecodeError):
            raise _Bad(f"not UTF-8 at byte {error.start} of the line") from None
        raise _Bad(f"not a JSON object: {error}") from None
    if not whole_text(line):
        raise _Bad("half a character: an escaped surrogate (\\ud800 to \\udfff) without its pair")
    return row


def _check(row: Any, dataset: str) -> None:
    if not isinstance(row, dict):
        raise _Bad(f"a row must be a JSON object, not {type(row).__name__}")
    if formatted := [name for name in ("question", "answer_prefix") if name in row]:
        raise _Bad(
            f"pre-formatted mirror (field {', '.join(formatted)}): its texts already hold the instructions, so the "
            "prompts would carry them twice",
            "Use the original rows: LongBench's data.zip",
        )
    if missing := [name for name in _FIELDS if name not in row]:
        raise _Bad(f"missing field {', '.join(missing)}")
    for name in _TEXT_FIELDS:
        if not isinstance(row[name], str):
            _wrong_field(row, name, "a string")
    if type(row["length"]) is not int or row["length"] < 0:
        _wrong_field(row, "length", "a whole number")
    if not row["answers"] or not _strings(row["answers"]):
        _wrong_field(row, "answers", "a list of at least one string")
    if base_name(dataset) in _CLASSES:
        if not row["all_classes"] or not _strings(row["all_classes"]):
            _wrong_field(row, "all_classes", "a list of class names")
    elif row["all_classes"] is not None:
        _wrong_field(row, "all_classes", "null (only trec and lsht have classes)")
    if not isinstance(row["_id"], str | None):
        _wrong_field(row, "_id", "a string or null")
    if row["dataset"] != dataset:
        _wrong_field(row, "dataset", repr(dataset))
    if fault := gold_fault(dataset, row["answers"]):
        raise _Bad(f"field {fault}")


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _wrong_field(row: dict[str, Any], name: str, wanted: str) -> NoReturn:
    value = json.dumps(row[name], ensure_ascii=False)
    shown = value if len(value) <= 60 else f"{value[:57]}..."
    raise _Bad(f"field {name} must be {wanted}, not {shown}")


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
