"""What the folder of configs offers: the choices of each group, their descriptions, and every key that can be set.

Reads YAML files only, so that help and error messages need neither Hydra nor torch.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

from selkv.errors import UserError
from selkv.named import configs, folders, read_yaml


def groups() -> list[str]:
    """Names of the config groups, e.g. ``method`` and ``model``."""
    # `limits` follows from protocol and model: not the user's choice
    return sorted(folder.name for folder in configs().iterdir() if folder.is_dir() and folder.name != "limits")


def file_of(group: str, name: str) -> Path:
    """YAML file of a choice, ours or the user's own; no name is in both."""
    return next(path for folder in folders() if (path := folder / group / f"{name}.yaml").is_file())


def choices(group: str) -> list[str]:
    """Names that ``<group>=`` accepts."""
    return sorted({path.stem for folder in folders() for path in (folder / group).glob("*.yaml")})


def describe(group: str, name: str) -> str:
    """First comment line of a choice's YAML file that is not a package header."""
    for line in file_of(group, name).read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ").rstrip()
    return ""


def package(group: str, name: str) -> str:
    """Where Hydra puts the keys of a choice: what its ``# @package`` line says, else the group.

    Raises
    ------
    UserError
        For a method's file that does not say ``methods.<name>``: its keys would be lost.
    """
    path = file_of(group, name)
    header = re.search(r"^# @package (\S+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if group == "method" and (header is None or header[1] != f"methods.{name}"):
        raise UserError(f"{path} must begin with the line: # @package methods.{name}")
    return header[1] if header else group


@cache
def known_keys() -> dict[str, str]:
    """Every key that can be set on the command line, with the choice that brings it.

    Returns
    -------
    dict of str to str
        Dotted key to ``group=name`` of a file that defines it; the empty string for the keys of ``config.yaml``.
    """
    keys = dict.fromkeys([*groups(), "limit.first"], "") | dict.fromkeys(_flatten(configs() / "config.yaml"), "")
    for group in groups():
        for name in choices(group):
            place = package(group, name)
            if place != "_global_":
                keys |= {f"{place}.{key}": f"{group}={name}" for key in _flatten(file_of(group, name))} | keys
    return keys


def _flatten(path: Path) -> list[str]:
    """Dotted keys of a YAML file."""
    return _keys({key: value for key, value in read_yaml(path).items() if key not in ("defaults", "hydra", "_target_")})


def _keys(tree: dict[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in tree.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, dict):
            names += _keys(value, f"{prefix}{key}.")
    return names
