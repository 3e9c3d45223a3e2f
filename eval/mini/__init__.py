"""The built-in data: rows in LongBench's format for its 16 English tasks, drawn from small worlds by a seed.

Own texts and own prompts under LongBench's task names, scored by its metrics; the scores are not comparable with
published ones. Measured on the embedded model: docs/results.md.
"""

import hashlib
import json
import random
from collections.abc import Sequence

from eval.mini import code, fewshot, qa, summaries, synthetic
from eval.mini.draft import Recipe
from eval.sample import Benchmark, Sample
from selkv.errors import unknown

RECIPES: dict[str, Recipe] = {**qa.TASKS, **summaries.TASKS, **fewshot.TASKS, **synthetic.TASKS, **code.TASKS}


def load(tasks: Sequence[str], limit: int, seed: int = 0, tokens: int = 800) -> Benchmark:
    """Draw the first rows of the tasks.

    Parameters
    ----------
    tasks : sequence of str
        English LongBench names.
    limit : int
        Rows a task; row i depends on (seed, task, i, tokens) alone.
    seed : int
        Another seed, other rows.
    tokens : int
        Length of a prompt, roughly.

    Raises
    ------
    UserError
        For a task that is not built in.
    """
    for task in tasks:
        if task not in RECIPES:
            raise unknown("task", task, RECIPES)
    samples = {task: tuple(_sample(task, index, seed, tokens) for index in range(limit)) for task in tasks}
    return Benchmark(
        name="mini",
        samples=samples,
        prompts={task: RECIPES[task].prompt for task in tasks},
        expected=dict.fromkeys(tasks, limit),
        sources={task: _digest(rows) for task, rows in samples.items()},
    )


def _sample(task: str, index: int, seed: int, tokens: int) -> Sample:
    # A string seed is hashed by `random` itself (sha512), the same in every process and Python version.
    draft = RECIPES[task].draw(random.Random(f"{seed}/{task}/{index}/{tokens}"), tokens)
    return Sample(
        id=f"{task}-{seed}-{tokens}-{index}",
        dataset=task,
        input=draft.input,
        context=draft.context,
        answers=draft.answers,
        length=len(draft.context.split()),
        language=draft.language,
        all_classes=draft.all_classes,
        index=index,
    )


def _digest(rows: Sequence[Sample]) -> str:
    text = json.dumps([vars(row) for row in rows], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
