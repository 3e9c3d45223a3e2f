"""Methods by name: the YAML files of ``configs/method``, read without Hydra, and without torch until one is built."""

import dataclasses
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from selkv.errors import UserError, unknown

if TYPE_CHECKING:
    from selkv.method import Method


def configs() -> Path:
    """Folder of the YAML files: inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def method_named(name: str, **hyperparameters: Any) -> "Method":
    """The method of a YAML file.

    Parameters
    ----------
    name : str
        Stem of a file in ``configs/method``, e.g. ``selkv`` or ``snapkv``.
    **hyperparameters
        Replace the file's values.

    Raises
    ------
    UserError
        For an unknown name, unknown hyperparameters, or values that the method refuses.
    """
    names = sorted(path.stem for path in (configs() / "method").glob("*.yaml"))
    if name not in names:
        raise unknown("method", name, names)
    options = yaml.safe_load((configs() / f"method/{name}.yaml").read_text(encoding="utf-8"))
    return build(name, options.pop("_target_"), options | hyperparameters)


def build(name: str, target: str, hyperparameters: Mapping[str, Any]) -> "Method":
    """Build a method from the import path of its class (imports torch).

    Parameters
    ----------
    name : str
        What errors call it.
    target : str
        Import path of the class.
    hyperparameters : mapping
        Values of its fields; lists become tuples.

    Raises
    ------
    UserError
        For hyperparameters that the method does not have, or values that it refuses.
    """
    module, _, attribute = target.rpartition(".")
    try:
        method = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"method {name}: cannot import _target_ {target!r} ({error})") from error
    known = [field.name for field in dataclasses.fields(method) if field.init]
    for key in hyperparameters:
        if key not in known:
            raise unknown(f"hyperparameter of method {name}", key, known)
    try:
        return method(**{key: tuple(v) if isinstance(v, list) else v for key, v in hyperparameters.items()})
    except (TypeError, ValueError) as error:
        raise UserError(f"method {name}: {error}") from error
