"""LongBench and LongBench-E as a `Benchmark`: original rows, official prompts, known row counts."""

import hashlib
import random
from collections.abc import Sequence
from itertools import pairwise

from eval.longbench.files import File, locate, read, read_mirror
from eval.longbench.rows import OFFICIAL, OWN, parse
from eval.longbench.templates import read_templates
from eval.sample import Benchmark, Sample, TaskPrompt
from eval.tasks import CATEGORIES, ENGLISH, ROWS_E, TASKS, base_name
from selkv.errors import UserError, unknown


def load(
    tasks: Sequence[str] | str = "en",
    limit: int | None = None,
    seed: int = 0,
    first: bool = False,
    path: str | None = None,
    e: bool = False,
    mirror: str | None = None,
    prompts_path: str | None = None,
    revision: str | None = None,
) -> Benchmark:
    """LongBench with its official prompts.

    Parameters
    ----------
    tasks : str or sequence of str
        ``en`` (the 16 English tasks), ``all`` (21), categories, task names, or a list of those (see `select`).
    limit : int, optional
        Rows per task (see `draw`); all by default.
    seed : int
        Of the draw.
    first : bool
        Take the first `limit` rows instead.
    path : str, optional
        File, folder or zip; by default the order of `eval.longbench.files`.
    e : bool
        LongBench-E (files ``<name>_e.jsonl``).
    mirror : str, optional
        Parquet mirror with the original fields, read instead of the files.
    prompts_path : str, optional
        The user's ``dataset2prompt.json``.
    revision : str, optional
        Commit of the hub's repository.

    Raises
    ------
    UserError
        For anything missing or wrong, with the file, the line and the fix.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit={limit}: must be at least 1 row per task, or null for all")
    if path is not None and mirror is not None:
        raise UserError(f"data.path={path} and data.mirror={mirror} exclude each other; give one of them")
    names = select(tasks, e)
    datasets = [f"{name}_e" for name in names] if e else names
    templates = read_templates(names, prompts_path)
    place = None if mirror is not None else locate(datasets, path, revision)
    notes = [f"data: parquet mirror {mirror}" if place is None else place.note, f"prompts: {templates.source}"]

    samples: dict[str, tuple[Sample, ...]] = {}
    sources: dict[str, str] = {}
    expected = {dataset: ROWS_E[name] if e else TASKS[name].rows for dataset, name in zip(datasets, names, strict=True)}
    for dataset in datasets:
        file: File = read_mirror(str(mirror), dataset) if place is None else read(place.path, dataset)
        rows = parse(file.data, dataset, file.origin, OFFICIAL if path is None else OWN)
        sources[dataset] = hashlib.sha256(file.data).hexdigest()
        if len(rows) != expected[dataset]:
            notes.append(f"{dataset}: the file has {len(rows)} rows, LongBench has {expected[dataset]}")
        samples[dataset] = rows if limit is None else rows[:limit] if first else draw(rows, limit, seed)
    return Benchmark(
        name="longbench_e" if e else "longbench",
        samples=samples,
        prompts={dataset: _prompt(base_name(dataset), templates.texts) for dataset in datasets},
        expected=expected,
        sources=sources,
        notes=tuple(notes),
    )


def select(tasks: Sequence[str] | str, e: bool = False) -> list[str]:
    """Task names in LongBench's order.

    Parameters
    ----------
    tasks : str or sequence of str
        ``en`` or ``english``, ``all``, categories (``Single-Doc QA`` or ``single-doc-qa``: their English tasks), names
        (for LongBench-E with or without ``_e``), or a list of those.
    e : bool
        LongBench-E, which has 13 of the English tasks.
    """
    known = list(ROWS_E) if e else list(TASKS)
    named = {name: [name] for name in known} | {"all": known}
    named["en"] = named["english"] = english = [name for name in known if name in ENGLISH]
    for category in CATEGORIES:
        named[_slug(category)] = [name for name in english if TASKS[name].category == category]
    words = [tasks] if isinstance(tasks, str) else list(tasks)
    for word in words:
        if _slug(word, e) not in named:
            raise unknown("LongBench-E task" if e else "task", word, named)
    if not words:
        raise UserError(f"data.tasks=[] selects nothing; choose from: {', '.join(named)}")
    return [name for name in known if any(name in named[_slug(word, e)] for word in words)]


def _slug(word: str, e: bool = False) -> str:
    slug = word.lower().replace(" ", "-")
    return slug.removesuffix("_e") if e else slug


def draw(rows: tuple[Sample, ...], limit: int, seed: int) -> tuple[Sample, ...]:
    """Seeded sample stratified by length, in file order.

    The rows are sorted by length (ties in file order) and cut into `limit` strata of equal size (to within one row);
    ``random.Random(f"{seed}-{dataset}")`` draws one row from each, shortest stratum first. The `_e` files are sorted
    by length, so their first rows would all be short.
    """
    count = len(rows)
    if limit >= count:
        return rows
    by_length = sorted(rows, key=lambda row: (row.length, row.index))
    generator = random.Random(f"{seed}-{rows[0].dataset}")
    bounds = [stratum * count // limit for stratum in range(limit + 1)]
    picked = [by_length[generator.randrange(low, high)] for low, high in pairwise(bounds)]
    return tuple(sorted(picked, key=lambda row: row.index))


def _prompt(name: str, templates: dict[str, str]) -> TaskPrompt:
    task = TASKS[name]
    return TaskPrompt(templates[name], task.max_new_tokens, task.chat, task.stop_at_newline)
