"""Types of the options of a run, and the check that names the first one whose value does not fit."""

import re
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, Field

from eval.arms import written
from eval.choices import choices
from selkv.errors import UserError, unknown
from selkv.values import Amount, Positive, Seed, checked

RESERVED = ("budgets", "cells", "multirun", "reference")  # folders of results/ that are no run's


def _folder(name: str) -> str:
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise ValueError("must be a name for a folder of results: letters, digits, _ - .")
    return name


def _free(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"must be another name for a folder of results than {', '.join(RESERVED)}")
    return name


Folder = Annotated[str, AfterValidator(_folder)]
Text = Annotated[str, Field(min_length=1)]

KINDS: dict[str, Any] = {
    "name": Annotated[Folder, AfterValidator(_free)],
    "results": Text,
    "seed": Seed,
    "compress": Literal["prompt", "context"],
    "sliding_layers": Literal["compress", "keep"],
    "deterministic": bool,
    "scoring": Literal["official", "strict"],
    "code_sim": Literal["difflib", "levenshtein"],
    "fidelity": bool | Literal["auto"],
    "baseline": str | None,
    "report": bool,
    "tracking": Literal["mlflow", "wandb"] | None,
    "dry_run": bool,
    "events": Literal["json"] | None,
    "model.name": Folder,
    "model.path": Text | None,
    "model.revision": Text,
    "model.dtype": Literal["auto", "float32", "bfloat16", "float16"],
    "model.max_prompt_tokens": Positive,
    "model.chat": Text,
    "model.system": str | None,
    "model.enable_thinking": bool | None,
    "model.device": Text,
    "model.device_map": Text | dict[str, int | str] | None,
    "model.quantization": dict[str, Any] | None,
    "model.trust_remote_code": bool,
    "engine.memory_fraction": Annotated[float, Field(gt=0, le=1)],
    "engine.address": Text | None,
    "engine.workers": Literal["auto"] | Positive,
    "engine.gpus_per_worker": Literal["auto"] | Amount,
    "engine.cpus_per_worker": Amount,
    "protocol.truncation": Literal["ids", "official"],
    "prefill.mode": Literal["one_pass", "two_pass"],
    "prefill.chunk": Positive | None,
    "data.tasks": str | list[str],
    "data.path": Text | None,
    "data.mirror": Text | None,
    "data.prompts_path": Text | None,
    "data.revision": Text | None,
    "data.tokens": Positive,
    "data.lengths": Annotated[list[Positive], Field(min_length=1)],
    "data.depths": Annotated[int, Field(ge=2)],
    "data.repeats": Positive,
}
GROUPS = ("model", "data", "engine", "protocol", "prefill")


def check(config: DictConfig) -> None:
    """Compare every option that the config has with its type; data of others may bring options of their own.

    Raises
    ------
    UserError
        For the first that does not fit, with what it must be.
    """
    for group in GROUPS:
        if not isinstance(OmegaConf.select(config, group), DictConfig):
            raise unknown(group, written(OmegaConf.select(config, group)), choices(group))
    for key, kind in KINDS.items():
        group, _, name = key.rpartition(".")
        holder = config[group] if group else config
        if name in holder:
            value = OmegaConf.select(config, key)
            plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            try:
                checked(plain, kind)
            except ValueError as reason:
                raise UserError(f"{key}={written(plain)} {reason}") from None
