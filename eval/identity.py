"""Who the model is: its place, the commit behind its revision, and how it is loaded."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from eval.config import RunPlan
from eval.manifest import default_device
from eval.prompts import Protocol
from selkv.errors import Missing, unknown

SAMPLE = 2**14
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "auto": "auto"}


def model_path(plan: RunPlan) -> str:
    """Folder or hub id of the model."""
    if plan.model.get("embedded"):
        from selkv.embedded import resolve_smollm2

        return resolve_smollm2()
    return str(plan.model["path"])


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
    model = plan.model
    if model["dtype"] not in DTYPES:
        raise unknown("model.dtype", model["dtype"], DTYPES)
    options: dict[str, Any] = {
        "revision": model["revision"],
        "dtype": DTYPES[model["dtype"]],
        "trust_remote_code": model["trust_remote_code"],
        "device_map": model["device_map"] or default_device(model["device"]),
    }
    if model["quantization"] is not None:
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(**model["quantization"])
    return model_path(plan), options


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
