"""Finds LongBench's files: the path given, else ``SELKV_LONGBENCH``, else the cache, else ``data.zip`` from the hub.

A place is a file (one task), a folder (``<name>.jsonl``, ``data/<name>.jsonl`` or ``data.zip`` in it) or a zip.
"""

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eval.longbench.official import HUB_IDS
from eval.tasks import base_name
from selkv.cachedir import cache_dir
from selkv.errors import Missing, UserError

FIX = "download data.zip of zai-org/LongBench where there is a network, then give data.path=FILE_OR_FOLDER"


class File(NamedTuple):
    """Bytes of one task's rows, and how errors name where they came from."""

    origin: str
    data: bytes


class Place(NamedTuple):
    """A path that holds all the files asked for, and what a table should say about it."""

    path: Path
    note: str


def locate(datasets: Sequence[str], path: str | None = None, revision: str | None = None) -> Place:
    """First place that holds the files of all `datasets`.

    Parameters
    ----------
    datasets : sequence of str
        File names without ``.jsonl``.
    path : str, optional
        File, folder or zip; nothing else is tried then.
    revision : str, optional
        Commit or branch of the hub's repository; by default the commit of the first download, which is kept in the
        cache (``longbench/hub.json``) so that later runs read the same file.

    Raises
    ------
    UserError
        Naming the places tried and how to get the files.
    """
    if path is not None:
        return _given(Path(path).expanduser(), datasets, f"data.path={path}")
    if variable := os.environ.get("SELKV_LONGBENCH"):
        return _given(Path(variable).expanduser(), datasets, f"SELKV_LONGBENCH={variable}")
    cache = cache_dir() / "longbench"
    if cache.is_dir() and not _missing(cache, datasets):
        return Place(cache, f"data: {cache}")
    tried = [str(cache)]
    found = _from_hub(revision, cache / "hub.json", tried)
    if found is not None:
        return _given(found.path, datasets, "data.zip", found.note)
    raise Missing(f"LongBench's data not found; tried: {'; '.join(tried)}. Fix: {FIX}")


def read(place: Path, dataset: str) -> File:
    """Bytes of one task's file at `place`, untouched."""
    found = _find(place, dataset)
    if found is None:
        raise UserError(f"{place} has no {dataset}.jsonl")
    file, member = found
    if member is None:
        return File(str(file), file.read_bytes())
    with _open_zip(file) as archive:
        return File(f"{file}/{member}", archive.read(member))


def read_mirror(mirror: str, dataset: str) -> File:
    """One task's rows from a parquet mirror, as the JSON lines that they stand for.

    Parameters
    ----------
    mirror : str
        Hub id or local folder whose configurations are the task names, with a split ``test``.
    """
    import datasets as hub

    try:
        rows = hub.load_dataset(mirror, dataset, split="test")
    except RuntimeError as error:
        raise UserError(
            f"data.mirror={mirror}: {error}. Script data sets cannot be loaded; leave data.mirror empty: data.zip is "
            "read instead"
        ) from None
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"data.mirror={mirror}: cannot load {dataset}: {reason}. Fix: {FIX}") from None
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    return File(f"{mirror}/{dataset}", "\n".join([*lines, ""]).encode())


def _given(path: Path, datasets: Sequence[str], name: str, note: str = "") -> Place:
    if not path.exists():
        raise UserError(f"{name} does not exist. Fix: {FIX}")
    if path.is_file() and len(datasets) > 1 and not zipfile.is_zipfile(path):
        # A damaged zip and an LFS pointer to one are files too: say so before "a single task's file".
        _refuse_broken_zip(path)
        raise UserError(
            f"{name} is a single task's file, but {len(datasets)} tasks are selected; "
            f"add data.tasks=[{base_name(path.stem)}]"
        )
    missing = _missing(path, datasets)
    if missing:
        there = [base_name(dataset) for dataset in datasets if dataset not in missing]
        fix = f"add data.tasks=[{','.join(there)}] to run what is there" if there else FIX
        tried = "<name>.jsonl, data/<name>.jsonl and data.zip" if path.is_dir() else "data/<name>.jsonl, <name>.jsonl"
        raise UserError(f"{name} has no file for {', '.join(missing)} (looked for {tried}). Fix: {fix}")
    return Place(path, note or f"data: {path}")


def _missing(place: Path, datasets: Sequence[str]) -> list[str]:
    return [dataset for dataset in datasets if _find(place, dataset) is None]


def _find(place: Path, dataset: str) -> tuple[Path, str | None] | None:
    """File that holds the task, with the member's name where it is a zip."""
    names = (f"data/{dataset}.jsonl", f"{dataset}.jsonl")
    if place.is_dir():
        for name in reversed(names):
            if (place / name).is_file():
                return place / name, None
        place = place / "data.zip"
        if not place.is_file():
            return None
    elif place.suffix != ".zip" and not zipfile.is_zipfile(place):
        return place, None
    with _open_zip(place) as archive:
        members = set(archive.namelist())
    return next(((place, name) for name in names if name in members), None)


def _open_zip(path: Path) -> zipfile.ZipFile:
    _refuse_broken_zip(path)
    return zipfile.ZipFile(path)


def _refuse_broken_zip(path: Path) -> None:
    if path.suffix == ".zip" and not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            pointer = file.read(23) == b"version https://git-lfs"
        what = "a Git LFS pointer, not the data; run `git lfs pull` there" if pointer else "not a whole zip file"
        raise UserError(f"{path}:1: this is {what}. Fix: {FIX}")


def _from_hub(revision: str | None, lock: Path, tried: list[str]) -> Place | None:
    """``data.zip`` through huggingface_hub, which honours HF_HUB_OFFLINE and HF_ENDPOINT; None where it fails."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    pins = json.loads(lock.read_text(encoding="utf-8")) if lock.is_file() else {}
    unreachable = False
    for hub_id in HUB_IDS:
        wanted = revision or pins.get(hub_id)
        try:
            zipped = hf_hub_download(
                hub_id, "data.zip", repo_type="dataset", revision=wanted, local_files_only=unreachable
            )
        except (OSError, EntryNotFoundError) as error:
            tried.append(f"{hub_id} on the hub ({type(error).__name__})")
            # One round of retries is enough: without a network the other name can only be in the local cache.
            unreachable |= isinstance(error, LocalEntryNotFoundError)
            continue
        commit = Path(zipped).parent.name
        if revision is None and commit != pins.get(hub_id):
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.write_text(json.dumps(pins | {hub_id: commit}, indent=1) + "\n", encoding="utf-8")
        return Place(Path(zipped), f"data: data.zip of {hub_id} at {commit}")
    return None
