"""The Hydra application behind ``python run.py`` and ``selkv run``: read the config, validate it, hand over."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from selkv.errors import UserError, command
from selkv.named import OWN, configs, existing, folders

if TYPE_CHECKING:  # --help must not wait for Hydra
    from omegaconf import DictConfig

    from eval.config import RunPlan

FULL_ERROR = "HYDRA_FULL_ERROR"


@command
def main(arguments: list[str]) -> int:
    """Run what the command line asks for.

    Parameters
    ----------
    arguments : list of str
        Without the program's name.

    Returns
    -------
    int
        0; 1 where a cell failed; 2 for a user's mistake (one line on standard error); 130 after Ctrl-C.
    """
    arguments = own_configs(arguments)
    if {"-h", "--help"} & set(arguments):
        from eval.help import page

        print(page())
        return 0
    if "--version" in arguments:
        from selkv import __version__

        print(f"selkv {__version__}")
        return 0
    return _hydra(arguments)


def _told(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


def plan_of(overrides: Sequence[str]) -> "RunPlan":
    """The plan that a command line describes, without running it.

    Parameters
    ----------
    overrides : sequence of str
        ``key=value`` arguments as run.py takes them.

    Raises
    ------
    UserError
        For any mistake in them.
    """
    import hydra

    from eval.config import plan_from

    arguments = _prepare(own_configs(overrides))
    with _explained(), hydra.initialize_config_dir(str(configs()), version_base="1.3"):
        return plan_from(hydra.compose("config", overrides=arguments))


def _hydra(overrides: Sequence[str]) -> int:
    import hydra
    from omegaconf import OmegaConf

    from eval.explain import note_repetitions

    codes: list[int] = []
    written: set[tuple[str, str, str]] = set()

    def job(config: "DictConfig") -> None:
        place = (str(config.get("results")), str(config.get("name")), str(OmegaConf.select(config, "model.name")))
        if place in written:
            print(f"note: this run replaces the tables of the one before in {'/'.join(place)}/", file=sys.stderr)
        written.add(place)
        codes.append(_job(config))
        if codes[-1] == 130:  # the runner has caught Ctrl-C and said how to continue: start no further job of -m
            raise KeyboardInterrupt

    note_repetitions(overrides)
    sys.argv = [sys.argv[0], *_prepare(overrides)]
    with _explained():
        hydra.main(version_base="1.3", config_path=str(configs()), config_name="config")(job)()
    return max(codes, default=0)


def _prepare(arguments: Sequence[str]) -> list[str]:
    from omegaconf import OmegaConf

    from eval.explain import refuse

    refuse(arguments)
    OmegaConf.register_new_resolver("auto_data", auto_data, replace=True)
    # Grids, limit.first and the method inside another bring keys of their own: spare the user Hydra's plus signs.
    plus = re.compile(r"grid\.|limit\.first=|methods\.\w+\.selection\.")
    quoted = [str(folder).replace("\\", "\\\\").replace("'", "\\'") for folder in folders()[1:]]
    search = [f"hydra.searchpath=['file://{folder}']" for folder in quoted]  # Hydra decodes no %20
    given = [f"++{text}" if plus.match(text) else text for text in arguments]
    first = next((i for i, text in enumerate(given) if "=" in text), len(given))  # flags like -m stay in front
    return [*given[:first], *search, *given[first:]]


def own_configs(arguments: Sequence[str]) -> list[str]:
    """Take ``--config-dir FOLDER`` out and set SELKV_CONFIGS to it: then help, messages and all commands know it."""
    from eval.explain import FOLDER_FLAG

    rest = list(arguments)
    for i, argument in enumerate(rest):
        flag, equals, folder = argument.partition("=")
        if flag == FOLDER_FLAG:
            if not equals and i + 1 == len(rest):
                raise UserError(f"{FOLDER_FLAG} needs a folder that holds method/NAME.yaml, for example")
            os.environ[OWN] = existing(folder if equals else rest[i + 1])
            return rest[:i] + rest[i + (1 if equals else 2) :]
    return rest


@contextmanager
def _explained() -> Iterator[None]:
    """Retell Hydra's errors in one line; HYDRA_FULL_ERROR=1 shows a developer the original."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from eval.explain import explain

    developer = os.environ.get(FULL_ERROR) == "1"
    os.environ[FULL_ERROR] = "1"  # Hydra raises instead of printing and exiting
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        if developer:
            raise
        raise explain(error) from None
    finally:
        if not developer:
            del os.environ[FULL_ERROR]


def _job(config: "DictConfig") -> int:
    from omegaconf.errors import OmegaConfBaseException

    from eval.config import plan_from
    from eval.explain import explain

    try:
        plan = plan_from(config)
        if plan.dry_run:  # before the hub's library is imported: a plan asks nobody
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from eval.runner import run  # imports torch: only once the config is known to be right

        return run(plan)
    except UserError as error:
        return _told(error)
    except OmegaConfBaseException as error:  # before Hydra sees it, which would print more
        return _told(explain(error))


def auto_data(data: str, model: str) -> str:
    """Config that is loaded after data's own: what ``auto`` means for this model, else the empty ``auto.yaml``."""
    if data != "auto":
        return "auto"
    return "mini" if model == "smollm2" else "longbench"
