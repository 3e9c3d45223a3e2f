"""Tasks as facts: category, metric, language, generation limit, chat or bare prompt.

LongBench's stand here. Source: THUDM/LongBench, commit 2e00731f (pred.py, eval.py, config/dataset2maxlen.json);
categories from its README. Another benchmark brings its own as `TASKS` of the module ``eval.<data>.tasks``.
"""

import importlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from selkv.errors import unknown


class Task(NamedTuple):
    """One dataset.

    `metric` names a function of `eval.metrics`; `max_new_tokens` is the official limit; `chat` is False where
    LongBench skips the chat template; `first_line` is the scorer's rule (leading newlines dropped, first line kept);
    `mean` scores the mean over the answers (RULER) instead of the best; `short` is the name in narrow tables.
    """

    name: str
    category: str
    metric: str
    language: str
    max_new_tokens: int
    chat: bool = True
    first_line: bool = False
    rows: int = 200
    stop_at_newline: bool = False
    mean: bool = False
    short: str = ""


SINGLE, MULTI, SUMMARY, FEWSHOT, SYNTHETIC, CODE = CATEGORIES = (
    "Single-Doc QA",
    "Multi-Doc QA",
    "Summarization",
    "Few-shot",
    "Synthetic",
    "Code",
)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("narrativeqa", SINGLE, "qa_f1", "en", 128),
        Task("qasper", SINGLE, "qa_f1", "en", 128),
        Task("multifieldqa_en", SINGLE, "qa_f1", "en", 64, rows=150),
        Task("multifieldqa_zh", SINGLE, "qa_f1_zh", "zh", 64),
        Task("hotpotqa", MULTI, "qa_f1", "en", 32),
        Task("2wikimqa", MULTI, "qa_f1", "en", 32),
        Task("musique", MULTI, "qa_f1", "en", 32),
        Task("dureader", MULTI, "rouge_zh", "zh", 128),
        Task("gov_report", SUMMARY, "rouge", "en", 512),
        Task("qmsum", SUMMARY, "rouge", "en", 512),
        Task("multi_news", SUMMARY, "rouge", "en", 512),
        Task("vcsum", SUMMARY, "rouge_zh", "zh", 512),
        Task("trec", FEWSHOT, "classification", "en", 64, chat=False, first_line=True),
        Task("triviaqa", FEWSHOT, "qa_f1", "en", 32, chat=False, first_line=True),
        Task("samsum", FEWSHOT, "rouge", "en", 128, chat=False, first_line=True, stop_at_newline=True),
        Task("lsht", FEWSHOT, "classification", "zh", 64, chat=False, first_line=True),
        Task("passage_count", SYNTHETIC, "count", "en", 32),
        Task("passage_retrieval_en", SYNTHETIC, "retrieval", "en", 32),
        Task("passage_retrieval_zh", SYNTHETIC, "retrieval_zh", "zh", 32),
        Task("lcc", CODE, "code_sim", "code", 64, chat=False, rows=500),
        Task("repobench-p", CODE, "code_sim", "code", 64, chat=False, rows=500),
    )
}

ENGLISH: tuple[str, ...] = tuple(name for name, task in TASKS.items() if task.language != "zh")

# LongBench-E: 13 English tasks, rows by its own counts (repobench-p: at least 230 seen, 300 by the pattern).
ROWS_E: dict[str, int] = {
    name: {"qasper": 224, "multifieldqa_en": 150, "multi_news": 294}.get(name, 300)
    for name in ENGLISH
    if name not in ("narrativeqa", "musique", "qmsum")
}


def base_name(dataset: str) -> str:
    """Name of the task behind a file name: LongBench-E's ``hotpotqa_e`` is scored as ``hotpotqa``."""
    return dataset[:-2] if dataset.endswith("_e") and dataset[:-2] in TASKS else dataset


@cache
def others() -> dict[str, dict[str, Task]]:
    """Tasks of the other benchmarks, by the name of the data."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/tasks.py"))
    return {name: importlib.import_module(f"eval.{name}.tasks").TASKS for name in names}


def task_of(dataset: str) -> Task:
    """The task behind a dataset's name, whatever benchmark it belongs to.

    Raises
    ------
    UserError
        If no benchmark has such a dataset.
    """
    name = base_name(dataset)
    if name in TASKS:
        return TASKS[name]
    for tasks in others().values():
        if name in tasks:
            return tasks[name]
    raise unknown("dataset", dataset, [*TASKS, *(name for tasks in others().values() for name in tasks)])
