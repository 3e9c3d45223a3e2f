"""The one exception that users see: a single line that names the thing, the value, the choices and the fix."""

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Protocol


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


class Main(Protocol):
    """A command: takes its arguments, by default those of the process, and returns the exit status."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run it."""


def command(work: Callable[[list[str]], int]) -> Main:
    """Make a command's main of its work: arguments in, exit status out.

    It returns what the work returns, or 2 after one line on standard error for a UserError, 130 after Ctrl-C, 141 where
    the reader of its output has gone (``| head``).
    """

    @wraps(work)
    def main(argv: Sequence[str] | None = None) -> int:
        try:
            status = work(list(sys.argv[1:] if argv is None else argv))
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()  # here, and not when Python ends
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to fail at exit
            return 141
        return status

    return main
