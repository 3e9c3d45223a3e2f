"""The official prompt templates, read at run time and checked against the sha256 of the official ones.

They are not ours to copy. Sources, in order: the user's ``dataset2prompt.json``; the installed lm-eval package; a
download of the official file into the cache.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from eval.longbench.official import COMMIT, TEMPLATE_SHA256, TEMPLATES_URL
from selkv.cachedir import cache_dir
from selkv.errors import Missing, UserError

INSTALL = "pip install --no-deps lm_eval==0.4.13"

# White space that lm-eval 0.4.13 drops from the official templates (found by comparing rendered rows).
_LM_EVAL_ENDS = {"passage_count": " ", "passage_retrieval_en": " ", "lcc": "\n", "repobench-p": "\n"}
_LM_EVAL_GAPS = ("triviaqa", "samsum")


class Templates(NamedTuple):
    """Format string of each task, and where they came from."""

    texts: dict[str, str]
    source: str


def read_templates(tasks: Sequence[str], prompts_path: str | None = None, url: str = TEMPLATES_URL) -> Templates:
    """Official templates of `tasks`, byte for byte.

    Parameters
    ----------
    tasks : sequence of str
        Task names without the suffix ``_e``.
    prompts_path : str, optional
        The user's copy of LongBench's ``config/dataset2prompt.json``; nothing else is tried then.
    url : str
        Where the official file is downloaded from.

    Raises
    ------
    UserError
        Where no source has all templates with the official sha256.
    """
    if prompts_path is not None:
        texts = _read_json(Path(prompts_path).expanduser(), f"prompts_path={prompts_path}")
        if wrong := _wrong(texts, tasks):
            raise UserError(
                f"prompts_path={prompts_path}: not the official template for {', '.join(wrong)} (sha256 differs or "
                f"missing); take config/dataset2prompt.json of THUDM/LongBench at {COMMIT[:8]}, or drop prompts_path"
            )
        return Templates({task: texts[task] for task in tasks}, f"{prompts_path} (sha256 checked)")

    tried = []
    for source in (_from_lm_eval, _from_download):
        texts, name = source(tasks, url)
        wrong = _wrong(texts, tasks)
        if not wrong:
            return Templates({task: texts[task] for task in tasks}, f"{name} (sha256 checked)")
        tried.append(f"{name}, not official: {', '.join(wrong)}" if texts else name)
    raise Missing(
        f"LongBench's prompt templates not found ({'; '.join(tried)}). Run: {INSTALL}  "
        "(or give LongBench's config/dataset2prompt.json as data.prompts_path=FILE)"
    )


def _wrong(texts: dict[str, str], tasks: Sequence[str]) -> list[str]:
    return [task for task in tasks if hashlib.sha256(texts.get(task, "").encode()).hexdigest() != TEMPLATE_SHA256[task]]


def _from_lm_eval(tasks: Sequence[str], _: str) -> tuple[dict[str, str], str]:
    # Only the YAML files are read: importing lm_eval would need its many dependencies.
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or not spec.submodule_search_locations:
        return {}, "lm-eval is not installed"
    folder = Path(spec.submodule_search_locations[0]) / "tasks" / "longbench"
    try:
        name = f"lm-eval {importlib.metadata.version('lm_eval')}"
    except importlib.metadata.PackageNotFoundError:
        name = f"lm-eval in {folder.parents[1]}"
    files = {task: folder / f"{task}.yaml" for task in tasks}
    return {task: _lm_eval_template(task, file) for task, file in files.items() if file.is_file()}, name


def _lm_eval_template(task: str, file: Path) -> str:
    text = str(yaml.load(file.read_text(encoding="utf-8"), _TaskYaml).get("doc_to_text", ""))
    text = text.replace("{{context}}", "{context}").replace("{{question}}", "{input}").replace("{{input}}", "{input}")
    if task in _LM_EVAL_GAPS and "{context}\n\n" not in text:
        text = text.replace("{context}\n", "{context}\n\n")
    end = _LM_EVAL_ENDS.get(task, "")
    return text if text.endswith(end) else text + end


class _TaskYaml(yaml.SafeLoader):
    """lm-eval's task files name Python functions by a tag of their own; here they are plain strings."""


_TaskYaml.add_constructor("!function", lambda loader, node: node.value)


def _from_download(tasks: Sequence[str], url: str) -> tuple[dict[str, str], str]:
    file = cache_dir() / "longbench" / f"dataset2prompt-{COMMIT[:8]}.json"
    name = f"the official file at {COMMIT[:8]}"
    if not file.is_file():
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            return {}, "no download: HF_HUB_OFFLINE is set"
        try:
            with urllib.request.urlopen(url, timeout=20) as response:
                content = response.read()
            texts = _parse(content)
        except (OSError, ValueError) as error:
            return {}, f"download of {url} failed: {error}"
        if not _wrong(texts, list(TEMPLATE_SHA256)):
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}.part")
            part.write_bytes(content)
            part.replace(file)
        return texts, name
    return _read_json(file, "cached templates"), name


def _read_json(file: Path, what: str) -> dict[str, str]:
    try:
        return _parse(file.read_bytes())
    except OSError as error:
        raise UserError(f"{what}: cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{what}: {file} is not a JSON file of one template for each task name: {error}") from None


def _parse(content: bytes) -> dict[str, str]:
    texts = json.loads(content)
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("a template must be a string")
    return texts
