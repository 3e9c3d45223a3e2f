"""Command lines in argparse's style, with mistakes told in one line; and ``key=value`` options that are YAML."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import yaml

from eval.explain import note_repetitions
from selkv.errors import UserError


class Parser(argparse.ArgumentParser):
    """A parser that keeps the lines of its help, and tells a mistake in one line, without the usage in front."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        kind = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=prog, description=description, epilog=epilog, formatter_class=kind, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Exit with 2 and one line on standard error."""
        self.exit(2, f"error: {message}; see --help\n")


def whole(least: int) -> Callable[[str], int]:
    """Type of an option that is a whole number of at least `least`."""

    def parse(text: str) -> int:
        number = int(text) if text.lstrip("-").isdecimal() else least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least {least}, e.g. {max(least, 8)}")
        return number

    return parse


def yaml_options(arguments: Sequence[str], own: Callable[[str], bool]) -> tuple[dict[str, Any], list[str]]:
    """Take a command's own ``key=value`` options, whose values are YAML, out of those that it shares with run.py.

    Parameters
    ----------
    arguments : sequence of str
    own : callable
        Whether a key is the command's own.

    Returns
    -------
    options : dict of str to object
    rest : list of str
        The other arguments, as they are.

    Raises
    ------
    UserError
        For several runs (``-m``), or a value that cannot be read.
    """
    note_repetitions(arguments)
    options: dict[str, Any] = {}
    rest = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key in ("-m", "--multirun"):
            raise UserError(f"{key} is for python run.py; call this command once for each value")
        if not own(key):
            rest.append(argument)
            continue
        if not equals:
            raise UserError(f"{key} has no value; write {key}=VALUE, see --help")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError(f"cannot read {argument!r}; write key=value, a list as 'key=[a,b]'") from None
    return options, rest
