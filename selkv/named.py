"""Methods by name: the YAML files of ``configs/method``, read without Hydra, and without torch until one is built."""

import dataclasses
import importlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from selkv.errors import UserError, unknown

if TYPE_CHECKING:
    from selkv.method import Method


OWN = "SELKV_CONFIGS"


def configs() -> Path:
    """Folder of the YAML files: inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def folders() -> list[Path]:
    """Folders of YAML files: ours, and that of the user's own, named by ``SELKV_CONFIGS``.

    Raises
    ------
    UserError
        Where the variable names no folder.
    """
    own = os.environ.get(OWN)
    return [configs(), Path(existing(own))] if own else [configs()]


def existing(folder: str) -> str:
    """The absolute path of a folder of the user's YAML files, if there is one; UserError otherwise."""
    ours = [path for path in Path(folder).glob("*/*.yaml") if (configs() / path.relative_to(folder)).is_file()]
    if ours:
        raise UserError(f"{ours[0]} has the name of a file of SelKV; give it another, so that both can be told apart")
    if not Path(folder).is_dir():
        raise UserError(
            f"{folder} (--config-dir, {OWN}) is no folder; name one with method/NAME.yaml in it, for example"
        )
    return str(Path(folder).resolve())


def read_yaml(path: Path) -> dict[str, Any]:
    """Content of a YAML file of options.

    Raises
    ------
    UserError
        Where it is not YAML, or no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content or {}, dict):
        raise UserError(f"{path} must hold options as key: value lines, not {type(content).__name__}")
    return content or {}


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
    files = {path.stem: path for folder in folders() for path in (folder / "method").glob("*.yaml")}
    if name not in files:
        raise unknown("method", name, files)
    # what refers to the run's config (${seed}) keeps the class's default
    options = {key: value for key, value in read_yaml(files[name]).items() if not str(value).startswith("${")}
    return build(name, options.pop("_target_", None), options | hyperparameters)


def build(name: str, target: object, hyperparameters: Mapping[str, Any]) -> "Method":
    """Build a method from the import path of its class (imports torch).

    Parameters
    ----------
    name : str
        What errors call it.
    target : object
        Import path of the class; anything else is refused.
    hyperparameters : mapping
        Values of its fields; lists become tuples.

    Raises
    ------
    UserError
        For a path that leads to no method, hyperparameters that the method does not have, or values that it refuses.
    """
    from selkv.method import Method

    module, _, attribute = str(target).rpartition(".")
    try:
        method = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"method {name}: cannot import _target_ {target!r} ({error})") from error
    if not inspect.isclass(method) or not issubclass(method, Method) or inspect.isabstract(method):
        raise UserError(f"method {name}: _target_ {target!r} is no method; name a class that derives from selkv.Method")
    known = [field.name for field in dataclasses.fields(method) if field.init]
    for key in hyperparameters:
        if key not in known:
            raise unknown(f"hyperparameter of method {name}", key, known)
    try:
        return method(**{key: tuple(v) if isinstance(v, list) else v for key, v in hyperparameters.items()})
    except (TypeError, ValueError) as error:
        raise UserError(f"method {name}: {error}") from error
