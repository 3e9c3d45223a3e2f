"""Whether what a JSON file holds has the types that the code declares: dataclasses and TypedDicts are the schema."""

import json
import re
from collections.abc import Iterable, Mapping, Set
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

# By exact type: to Python a truth value is a whole number, to a record it is not.
PLAIN: dict[Any, Set[type]] = {str: {str}, int: {int}, float: {int, float}, bool: {bool}, NoneType: {NoneType}}
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
_HALF = re.compile("[\\ud800-\\udfff]")
SHOWN = 40  # characters of a wrong value


def misfit(value: Any, hint: Any, name: str) -> str:
    """What keeps a value from its type, in words; the empty string where nothing does.

    Parameters
    ----------
    value : object
        As json.loads gives it.
    hint : type
        ``Any``, a plain type, a list, a dict with text as keys, a TypedDict (which may hold more than it names), or a
        union of those.
    name : str
        How the value is called, e.g. ``arms[0].label``.
    """
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return ""
    if kind in (Union, UnionType):
        faults = [misfit(value, each, name) for each in inner]
        return "" if "" in faults else faults[0]
    if kind in PLAIN:
        return "" if type(value) in PLAIN[kind] else _wrong(name, value, WORDS[kind])
    if kind is list:
        if type(value) is not list:
            return _wrong(name, value, "a list")
        return _alike(value, inner[0]) and _first((f"{name}[{i}]", item, inner[0]) for i, item in enumerate(value))
    if type(value) is not dict:
        return _wrong(name, value, "an object with named values")
    if is_typeddict(hint):
        return fields_misfit(value, get_type_hints(hint), hint.__required_keys__, f"{name}.")
    return _alike(value.values(), inner[1]) and _first((f"{name}.{key}", each, inner[1]) for key, each in value.items())


def whole_text(line: bytes) -> bool:
    """Whether a line of JSON has no half surrogate pair: JSON can escape one, but no file can be written with it."""
    if b"\\ud" not in line.lower():
        return True
    return _HALF.search(json.dumps(json.loads(line), ensure_ascii=False)) is None


def fields_misfit(values: Mapping[str, Any], hints: Mapping[str, Any], required: Set[str], prefix: str = "") -> str:
    """`misfit` of named values; those that are not named may be anything."""
    if missing := sorted(required - values.keys()):
        return f"{prefix}{missing[0]} is missing"
    return _first((f"{prefix}{name}", values[name], hint) for name, hint in hints.items() if name in values)


def _alike(values: Iterable[Any], hint: Any) -> str:
    """The empty string where all have one plain type: the fast way through thousands of numbers; else a word."""
    return "" if hint is Any or set(map(type, values)) <= PLAIN.get(hint, set()) else "look"


def _first(parts: Iterable[tuple[str, Any, Any]]) -> str:
    return next((fault for name, value, hint in parts if (fault := misfit(value, hint, name))), "")


def _wrong(name: str, value: Any, wanted: str) -> str:
    shown = repr(value)
    return f"{name} must be {wanted}, not {shown if len(shown) <= SHOWN else f'{shown[: SHOWN - 3]}...'}"
