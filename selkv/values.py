"""What an option's value may be: types that are declared where the option is, and checked by pydantic."""

from functools import cache
from numbers import Integral
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from selkv.errors import UserError


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


def _whole(value: float) -> float:
    if value >= 1 and value != int(value):
        raise ValueError("must be below 1 or a whole number")
    return value


def one_of(*choices: str) -> AfterValidator:
    """Text among the choices, for a field that a subclass declares with other ones: a Literal could not be widened."""

    def check(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be {' or '.join(map(repr, choices))}")
        return value

    return AfterValidator(check)


MOST = 2**24
"""Of a count or an amount: beyond any use, and before memory or numbers overflow."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Seed = Annotated[int, Field(ge=0)]
Width = Annotated[int, Field(ge=1, le=MOST), AfterValidator(_odd)]
"""Of a pooling kernel, which has a middle."""
Amount = Annotated[float, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
Cosine = Annotated[float, Field(ge=-1, le=1)]
Portion = Annotated[float, Field(ge=0, le=MOST), AfterValidator(_whole)]
"""Below 1 a share of the budget, else a number of entries."""
Gate = Literal["none", "cosine"] | Cosine
"""No gate, the soft cosine gate, or the least cosine of a hard one."""
Reduction = Literal["mean", "max", "sum"]
"""From the query heads of a group to their KV head."""


WORDS = {
    "None": "null",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid dictionary": "a mapping",
    "an object": "a mapping",
    "a valid list": "a list",
    "String should have at least 1 character": "text that is not empty",
    "List should have at least 1 item after validation, not 0": "a list that is not empty",
    "'str' instances are not allowed as a Sequence value": "a list",
}  # pydantic's phrases in the words of a command line


def checked(value: object, kind: Any) -> Any:
    """The value, if it is of a type; a whole number where a float is asked for comes back as one.

    Strict: a truth value is no number, text no list, infinity no number.

    Parameters
    ----------
    value : object
    kind : type
        Any annotation that pydantic reads, e.g. ``Positive | None`` or ``Literal["mean", "max"]``.

    Raises
    ------
    ValueError
        Where it is not; says what it must be.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as problem:
        reasons = [told(error["msg"]) for error in problem.errors()]
        null = ["null"] if NoneType in get_args(kind) and "null" not in reasons else []
        raise ValueError(f"must be {' or '.join(dict.fromkeys(reasons + null))}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True))


def whole_number(name: str, value: Any, low: int) -> int:
    """The value, if it is a whole number of at least `low` (numpy's and torch's, too); UserError otherwise."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise UserError(f"{name}={value!r} is not a whole number of at least {low}, e.g. {name}={max(low, 5)}")
    return int(value)


def told(message: str) -> str:
    """Pydantic's message in the words of a command line, to follow ``must be``."""
    for opening in ("Input should be ", "Value error, must be "):
        message = message.removeprefix(opening)
    message = message.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return WORDS.get(message, message)
