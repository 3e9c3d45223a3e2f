"""The Hydra application behind ``python run.py`` and ``selkv run``: read the config, validate it, hand over."""

import os
import sys
from collections.abc import Sequence

from eval.choices import configs
from selkv.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0; 1 where a cell failed; 2 for a user's mistake (one line on standard error); 130 after Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(arguments):
        from eval.help import page

        print(page())
        return 0
    try:
        return _hydra([_openable(argument) for argument in arguments])
    except UserError as error:
        return _told(error)
    except KeyboardInterrupt:
        return 130


def _told(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


def _openable(argument: str) -> str:
    """Grids and ``limit.first`` bring keys of their own: spare the user Hydra's plus signs."""
    return f"++{argument}" if argument.startswith(("grid.", "limit.first=")) else argument


def _hydra(arguments: list[str]) -> int:
    import hydra
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from eval.explain import explain, refuse_flags

    refuse_flags(arguments)
    OmegaConf.register_new_resolver("auto_data", auto_data, replace=True)
    codes: list[int] = []

    def job(config: DictConfig) -> None:
        codes.append(_job(config))
        if codes[-1] == 130:  # the runner has caught Ctrl-C and said how to continue: start no further job of -m
            raise KeyboardInterrupt

    developer = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing, so that the error can be explained
    sys.argv = [sys.argv[0], *arguments]
    try:
        hydra.main(version_base="1.3", config_path=str(configs()), config_name="config")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        if developer:
            raise
        raise explain(error) from None
    return max(codes, default=0)


def _job(config: object) -> int:
    from eval.config import plan_from

    try:
        plan = plan_from(config)
        from eval.runner import run  # imports torch: only once the config is known to be right

        return run(plan)
    except UserError as error:
        return _told(error)


def auto_data(data: str, model: str) -> str:
    """Config that is loaded after data's own: what ``auto`` means for this model, else the empty ``auto.yaml``."""
    if data != "auto":
        return "auto"
    return "mini" if model == "smollm2" else "longbench"
