"""Command lines in argparse's style, with mistakes told in one line; and ``key=value`` options that are YAML."""

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

import yaml

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


def yaml_value(argument: str) -> tuple[str, Any]:
    """Key and value of ``key=value``, the value as YAML.

    Raises
    ------
    UserError
        Where it cannot be read.
    """
    key, equals, value = argument.partition("=")
    if not equals:
        raise UserError(f"{argument} has no value; write {argument}=VALUE, see --help")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"cannot read {argument!r}; write key=value, a list as 'key=[a,b]'") from None
