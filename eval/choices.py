"""What the folder of configs offers: the choices of each group, their descriptions, and every key that can be set.

Reads YAML files only, so that help and error messages need neither Hydra nor torch.
"""

import re
from functools import cache
from typing import Any

import yaml

from selkv.named import configs


def groups() -> list[str]:
    """Names of the config groups, e.g. ``method`` and ``model``."""
    # `limits` follows from protocol and model: not the user's choice
    return sorted(folder.name for folder in configs().iterdir() if folder.is_dir() and folder.name != "limits")


def choices(group: str) -> list[str]:
    """Names that ``<group>=`` accepts."""
    return sorted(path.stem for path in (configs() / group).glob("*.yaml"))


def describe(group: str, name: str) -> str:
    """First comment line of a choice's YAML file that is not a package header."""
    for line in (configs() / group / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ").rstrip()
    return ""


@cache
def known_keys() -> dict[str, str]:
    """Every key that can be set on the command line, with the choice that brings it.

    Returns
    -------
    dict of str to str
        Dotted key to ``group=name`` of a file that defines it; the empty string for the keys of ``config.yaml``.
    """
    keys = dict.fromkeys([*groups(), "limit.first"], "") | dict.fromkeys(_flatten(_load("config")), "")
    for group in groups():
        for name in choices(group):
            text = (configs() / group / f"{name}.yaml").read_text(encoding="utf-8")
            header = re.search(r"^# @package (\S+)", text, flags=re.MULTILINE)
            package = header.group(1) if header else group
            if package != "_global_":
                keys |= {f"{package}.{key}": f"{group}={name}" for key in _flatten(_load(f"{group}/{name}"))} | keys
    return keys


def _load(name: str) -> dict[str, Any]:
    content = yaml.safe_load((configs() / f"{name}.yaml").read_text(encoding="utf-8")) or {}
    return {key: value for key, value in content.items() if key not in ("defaults", "hydra", "_target_")}


def _flatten(tree: dict[str, Any], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in tree.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, dict):
            names += _flatten(value, f"{prefix}{key}.")
    return names
