"""The one exception that users see: a single line that names the thing, the value, the choices and the fix."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the user's, told in one line; the command line prints it and exits with 2."""


class Missing(UserError):
    """Data or weights that are not on this machine: a run cannot go on, its plan can still be shown."""


def unknown(thing: str, value: object, choices: Iterable[str], fix: str = "") -> UserError:
    """Error for a name that is not among the choices.

    Parameters
    ----------
    thing : str
        What was being chosen, e.g. ``method``.
    value : object
        What the user gave.
    choices : iterable of str
        What is allowed.
    fix : str, optional
        A sentence that says what to do; by default the closest choice is proposed.
    """
    names = sorted(choices)
    if not names:
        return UserError(f"unknown {thing} {str(value)!r}; there is none")
    close = difflib.get_close_matches(str(value), names, n=1)
    hint = fix or (f"Did you mean {close[0]!r}?" if close else "")
    return UserError(f"unknown {thing} {str(value)!r}; choose from: {', '.join(names)}. {hint}".rstrip())
