"""Who the model is: its place, the commit behind its revision, and how it is loaded."""

import hashlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import torch

from eval.config import RunPlan
from eval.manifest import default_device
from eval.prompts import Protocol
from selkv.errors import Missing, UserError, unknown
from selkv.load import place

SAMPLE = 2**14
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "auto": "auto"}
SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")  # transformers' ways to place layers on several devices


def model_path(plan: RunPlan) -> str:
    """Folder or hub id of the model."""
    if plan.model.get("embedded"):
        from selkv.embedded import resolve_smollm2

        return resolve_smollm2()
    if plan.model["path"] is None:
        raise UserError("model.path is not set; give a folder or a hub id: model.path=Qwen/Qwen3-8B")
    path = place(plan.model["path"])
    if Path(path).is_dir():
        for files in ("config.json", "*.safetensors *.bin"):
            if not any(file for pattern in files.split() for file in Path(path).glob(pattern)):
                raise UserError(
                    f"model.path={path} holds no {files.replace(' ', ' or ')}; give the folder with a model's "
                    "configuration, weights and tokenizer"
                )
    return path


def identity_of(plan: RunPlan) -> dict[str, Any]:
    """What of the model is part of every key: id, resolved revision, dtype, quantization."""
    path = model_path(plan)
    local = Path(path).is_dir()
    return {
        "id": Path(path).name if local else path,
        "revision": local_revision(plan, Path(path)) if local else resolved_revision(path, plan.model["revision"]),
        "dtype": plan.model["dtype"],
        "quantization": plan.model["quantization"],
    }


def local_revision(plan: RunPlan, folder: Path) -> str:
    """What tells a folder's model from another of the same name: a hash of its files, large ones by samples.

    ``local`` for the built-in model, whose id holds a hash already.
    """
    if plan.model.get("embedded"):
        return "local"
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(SAMPLE, size // 64)):
                file.seek(start)
                digest.update(file.read(SAMPLE))
    return f"local-{digest.hexdigest()[:16]}"


def resolved_revision(path: str, revision: str) -> str:
    """Commit behind a branch of the hub; offline, that of the local copy.

    Raises
    ------
    UserError
        When neither the hub nor a local copy is there.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # of httpx, httpx2 or requests, by its version

    try:
        return str(HfApi().model_info(path, revision=revision).sha)
    except (HTTPError, OfflineModeIsEnabled, OSError):
        cached = try_to_load_from_cache(path, "config.json", revision=revision)
        if isinstance(cached, str):
            return Path(cached).parent.name
    raise Missing(
        f"model {path} is neither on this machine nor reachable on the hub; download it where there is a network "
        f"(hf download {path}), or give a folder: model=hf model.path=FOLDER. Gated models need an accepted licence "
        "and HF_TOKEN"
    )


def model_options(plan: RunPlan) -> tuple[str, dict[str, Any]]:
    """Path and arguments for `selkv.load.load_model`."""
    return model_path(plan), load_options(plan)


def load_options(plan: RunPlan) -> dict[str, Any]:
    """Arguments for `selkv.load.load_model`; UserError where this machine or its libraries cannot follow them."""
    model = plan.model
    if model["dtype"] not in DTYPES:
        raise unknown("model.dtype", model["dtype"], DTYPES)
    quantization = {} if model["quantization"] is None else {"quantization_config": quantized(model["quantization"])}
    return {
        "revision": model["revision"],
        "dtype": DTYPES[model["dtype"]],
        "trust_remote_code": model["trust_remote_code"],
        "device_map": device_map_of(model["device_map"], model["device"]),
        **quantization,
    }


def device_map_of(wanted: str | dict[str, Any] | None, device: str) -> Any:
    """Where the layers go: to one device, or how transformers spreads them."""
    if wanted is None:
        return default_device(device)
    if isinstance(wanted, str) and wanted not in SPREAD:
        raise unknown("model.device_map", wanted, SPREAD, "For one device set model.device")
    for part, where in wanted.items() if isinstance(wanted, dict) else ():
        if where != "disk":
            default_device(
                f"cuda:{where}" if isinstance(where, int) else where, f"device of {part!r} in model.device_map"
            )
    return wanted


def quantized(wanted: dict[str, Any]) -> Any:
    """The configuration of bitsandbytes.

    Raises
    ------
    UserError
        For options that it does not have, values that it refuses, nothing to do, or where it is not installed.
    """
    from transformers import BitsAndBytesConfig

    known = [name for name in inspect.signature(BitsAndBytesConfig).parameters if name != "kwargs"]
    for name in wanted:
        if name not in known:
            raise unknown("option of model.quantization", name, known)
    if not (wanted.get("load_in_4bit") or wanted.get("load_in_8bit")):
        raise UserError(f"model.quantization={wanted} quantizes nothing; give {{load_in_4bit: true}} or 8bit, or null")
    try:
        config = BitsAndBytesConfig(**wanted)
    except (TypeError, ValueError) as reason:
        raise UserError(f"model.quantization={wanted}: {reason}") from None
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UserError("model.quantization needs bitsandbytes; run: pip install bitsandbytes")
    return config


def protocol_of(plan: RunPlan) -> Protocol:
    """How prompts become ids under this plan."""
    model = plan.model
    return Protocol(
        truncation=plan.protocol["truncation"],
        max_prompt_tokens=model["max_prompt_tokens"],
        chat=model["chat"],
        system=model["system"],
        enable_thinking=model["enable_thinking"],
    )
