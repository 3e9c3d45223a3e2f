"""Hydra's and OmegaConf's errors, retold in one line: the thing, the value, the choices, the fix."""

import difflib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

import yaml

from eval.choices import choices, groups, known_keys
from selkv.errors import UserError, unknown

FOLDER_FLAG = "--config-dir"
LISTS = ("method", "ratio", "data.tasks", "data.lengths")
HYDRA_FLAGS = (
    "--multirun", "--run", "--cfg", "--resolve", "--package", "--info", "--version", "--hydra-help",
    "--shell-completion", "--config-path", "--config-name", FOLDER_FLAG, "--experimental-rerun",
)  # fmt: skip


def refuse(arguments: Sequence[str]) -> None:
    """Raise UserError for what Hydra would not tell: ``--ratio 0.25``, a removal, a group that is no name."""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name.startswith("~"):
            raise UserError(f"{argument}: options cannot be removed; give another value (see --help)")
        if not name:
            raise UserError(f"{argument!r} has no key; options are written as key=value, e.g. ratio=0.25; see --help")
        if equals and name in groups() and not (name == "experiment" and value == "null"):
            with suppress(yaml.YAMLError):
                chosen = yaml.safe_load(value)
                names = chosen if isinstance(chosen, list) and name == "method" else [chosen]
                if not all(isinstance(each, str) for each in names):
                    raise unknown(name, value, choices(name))
        if name.startswith("--") and name not in HYDRA_FLAGS:
            option = name.strip("-").replace("-", "_")
            example = f"{option}={value or '...'}" if option in known_keys() else "ratio=0.25"
            raise UserError(f"unknown flag {name!r}; options are written as key=value, e.g. {example}; see --help")


def note_repetitions(arguments: Sequence[str]) -> None:
    """Say on standard error that of an option given twice the last one counts, as in any wrapper's script."""
    given: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and given.get(name, value) != value:
            both = f"; for both write '{name}=[{given[name]},{value}]'" if name in LISTS else ""
            print(f"note: {name} is given twice, {value} is used{both}", file=sys.stderr)
        given[name] = value


def explain(error: Exception) -> UserError:
    """One line for an exception of Hydra or OmegaConf.

    Parameters
    ----------
    error : HydraException or OmegaConfBaseException
        Raised while the command line was read or the config composed.
    """
    missing = getattr(error, "missing_cfg_file", None)
    if missing:
        group, _, name = str(missing).rpartition("/")
        return unknown(group, name, choices(group)) if group in groups() else UserError(f"no config {missing!r}")
    text = str(error) or str(error.__cause__)
    if found := re.search(r"Could not override '([^']*)'|config group '([^']*)' does not exist", text):
        return unknown_key(found[1] or found[2])
    if found := re.search(r"(?:Ambiguous value for argument|Sweep parameters) '([^=]+)=([^']*)'", text):
        key, value = found.groups()
        one = f"write '{key}=[{value}]' for one table, or " if key in LISTS else ""
        return UserError(f"{key}={value} has several values; {one}add -m for one run each")
    if override := getattr(error, "override", None):
        return UserError(
            f"cannot read {override!r}; write key=value, a list as 'key=[a,b]', text with spaces as \"key='a b'\""
        )
    if isinstance(error, yaml.YAMLError):
        return UserError(f"a file of options is not YAML: {' '.join(text.split())}")
    if "Multiple values for" in text:
        return UserError(f"{text.splitlines()[0].split('.')[0]}: give each option once")
    cause = f" ({error.__cause__})" if error.__cause__ and str(error.__cause__) not in text else ""
    return UserError(" ".join(f"{text}{cause}".split()))


def unknown_key(key: str) -> UserError:
    """Error for a key that the composed config does not have."""
    keys = known_keys()
    if keys.get(key):
        return UserError(f"{key} belongs to {keys[key]}, which this run does not use; choose {keys[key]} or drop {key}")
    if key.partition(".")[0] == "hydra":
        return UserError(f"unknown option {key!r}; see --hydra-help for Hydra's own")
    if key.startswith("methods.") and key.split(".")[1] not in choices("method"):
        return unknown("method", key.split(".")[1], choices("method"))
    parent, _, leaf = key.rpartition(".")
    siblings = [known for known in keys if parent and known.rpartition(".")[0] == parent]
    close = difflib.get_close_matches(key, keys, n=3, cutoff=0.6)
    close += [known for known in keys if known.rpartition(".")[2] == leaf and known not in close][:3]
    top = sorted(known for known in keys if "." not in known)
    allowed = siblings or (close if "." in key else top)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UserError(f"unknown option {key!r}; choose from: {', '.join(allowed)}.{hint} See --help")
