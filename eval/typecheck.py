"""Whether what a JSON file holds has the types that the code declares, in words; pydantic compares."""

import json
import re
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from selkv.values import told

SHOWN = 40  # characters of a wrong value
_HALF = re.compile("[\ud800-\udfff]")


def misfit(value: Any, kind: Any, name: str) -> str:
    """What keeps a value from its type, in words; the empty string where nothing does.

    Parameters
    ----------
    value : object
        As json.loads gives it.
    kind : type
        Any annotation that pydantic reads; a TypedDict may hold more than it names.
    name : str
        How the value is called, e.g. ``arms[0].label``.
    """
    try:
        _adapter(kind).validate_python(value, strict=True)
    except ValidationError as problem:
        return first_fault(problem, name)
    return ""


def first_fault(problem: ValidationError, name: str = "") -> str:
    """The first of pydantic's complaints: the place, what must be there, and what is."""
    error = problem.errors()[0]
    path = name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    place = path.removeprefix(".")
    if error["type"] == "missing":
        return f"{place} is missing"
    if error["type"] == "unexpected_keyword_argument":
        return f"{place} is no field of this version's"
    if error["type"] == "json_invalid":
        return error["msg"]
    shown = repr(error["input"])
    return f"{place} must be {told(error['msg'])}, not {shown if len(shown) <= SHOWN else f'{shown[: SHOWN - 3]}...'}"


def whole_text(line: bytes) -> bool:
    """Whether a line of JSON has no half surrogate pair: JSON can escape one, but no file can be written with it."""
    if b"\\ud" not in line.lower():
        return True
    return _HALF.search(json.dumps(json.loads(line), ensure_ascii=False)) is None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
