"""The validated plan of a run: Hydra's config, checked and expanded into plain dataclasses.

Needs neither torch nor the data, so that a mistake costs the user a second.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from eval.arms import Arm, arms_of, ratios_of
from eval.explain import unknown_key
from eval.options import check
from eval.tasks import ENGLISH, ROWS_E, TASKS, others, task_of
from selkv.errors import UserError, unknown
from selkv.values import whole_number

# Tasks of the data that follow LongBench's names; other data has tasks of its own.
TASK_SETS: dict[str, tuple[str, ...]] = {"mini": ENGLISH, "longbench": tuple(TASKS), "longbench_e": tuple(ROWS_E)}


@dataclass(frozen=True)
class RunPlan:
    """What a run does, from the config alone. `config` is the whole resolved config, for the run's folder."""

    name: str
    model: dict[str, Any]
    data: dict[str, Any]
    arms: tuple[Arm, ...]
    engine: dict[str, Any]
    protocol: dict[str, Any]
    prefill: dict[str, Any]
    limit: int | None
    first: bool
    seed: int
    results: Path
    compress: str
    sliding_layers: str
    deterministic: bool
    scoring: str
    code_sim: str
    fidelity: bool
    baseline: str | None
    report: bool
    tracking: str | None
    dry_run: bool
    events: str | None
    config: dict[str, Any]


def plan_from(cfg: Any) -> RunPlan:
    """Validate a composed config and expand it.

    Parameters
    ----------
    cfg : DictConfig
        The config as Hydra composed it.

    Raises
    ------
    UserError
        For the first mistake found, naming the key, its value, the choices and the fix.
    """
    for key in sorted(OmegaConf.missing_keys(cfg)):
        raise UserError(f"{key} is not set; add {key}=... (--help lists the options)")
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    for key in config.keys() - {field.name for field in dataclasses.fields(RunPlan)} - {"ratio", "methods", "grid"}:
        raise unknown_key(key)
    check(cfg)
    _check_model(config["model"])
    data = _data(config["data"])
    limit, first = _limit(config["limit"], data.get("limit"))
    arms = arms_of(config["methods"] or {}, config["grid"] or {}, ratios_of(config["ratio"]))
    if config["baseline"] not in (None, *(arm.method for arm in arms), *(arm.label for arm in arms)):
        raise unknown("baseline", config["baseline"], {arm.label for arm in arms}, "It must be a method of this run.")
    given = {field.name: config[field.name] for field in dataclasses.fields(RunPlan) if field.name in config}
    expanded = {
        "data": data,
        "arms": arms,
        "limit": limit,
        "first": first,
        "results": Path(str(config["results"])).expanduser(),
        "fidelity": data["name"] == "mini" if config["fidelity"] == "auto" else config["fidelity"],
        "config": config,
    }
    return RunPlan(**{**given, **expanded})


def _check_model(model: dict[str, Any]) -> None:
    """Raise UserError where a place is given for a model that has its own."""
    if model.get("embedded"):
        for key, default in (("path", None), ("revision", "main")):
            if model[key] != default:
                raise UserError(
                    f"model.{key}={model[key]} is ignored by model={model['name']}, whose weights come with a package; "
                    f"add model=hf for a model of your own: model=hf model.path={model['path'] or 'FOLDER_OR_HUB_ID'}"
                )


def _limit(value: Any, default: int | None) -> tuple[int | None, bool]:
    if isinstance(value, dict):
        if set(value) != {"first"}:
            raise UserError(f"limit={value} cannot be read; write limit=N, or limit.first=N for the first rows")
        return whole_number("limit.first", value["first"], low=1), True
    limit = default if value == "auto" else value
    return (None if limit is None else whole_number("limit", limit, low=1)), False


def _data(data: dict[str, Any]) -> dict[str, Any]:
    path = data.get("path")
    if path is not None and not Path(str(path)).expanduser().exists():
        raise UserError(f"data.path={path} does not exist; give the file, folder or zip that holds the data")
    tasks = TASK_SETS.get(data["name"]) or tuple(others().get(data["name"], ()))
    return data | {"tasks": tasks_of(data["tasks"], tasks)} if tasks else data


def tasks_of(value: Any, known: Sequence[str]) -> list[str]:
    """Task names behind ``data.tasks``, in the order of the data.

    Parameters
    ----------
    value : str or list of str
        Task names, ``english``, ``all``, or categories (``Single-Doc QA`` or ``single-doc-qa``: their English tasks).
    known : sequence of str
        Tasks that the data has.
    """
    named = {"all": list(known), "english": [name for name in known if task_of(name).language != "zh"]}
    for name in named["english"]:
        named.setdefault(task_of(name).category.lower().replace(" ", "-"), []).append(name)
    named |= {name: [name] for name in known}
    items = [str(item).lower().replace(" ", "-") for item in (value if isinstance(value, list) else [value])]
    for item in items:
        if item not in named:
            raise unknown("task", item, named)
    if not items:
        raise UserError("data.tasks=[] is empty; give task names, categories, english or all")
    return [name for name in known if any(name in named[item] for item in items)]
