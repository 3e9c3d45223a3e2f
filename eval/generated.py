"""Benchmarks whose rows are drawn, not read: a recipe a task, a seeded source of randomness a row."""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from eval.sample import Benchmark, Sample, TaskPrompt
from selkv.errors import UserError, unknown


class Draft(NamedTuple):
    """The fields of a row that a generator decides."""

    input: str
    context: str
    answers: tuple[str, ...]
    all_classes: tuple[str, ...] | None = None
    language: str = "en"


class Recipe(NamedTuple):
    """One task: its prompt, and the function that draws a row of about so many tokens."""

    prompt: TaskPrompt
    draw: Callable[[random.Random, int], Draft]


def generate(
    name: str, recipes: Mapping[str, Recipe], tasks: Sequence[str], limit: int | None, seed: int, tokens: int
) -> Benchmark:
    """Draw the first rows of the tasks.

    Parameters
    ----------
    name : str
        Of the benchmark.
    recipes : mapping of str to Recipe
        By task.
    tasks : sequence of str
    limit : int
        Rows a task; row i depends on (seed, task, i, tokens) alone.
    seed : int
    tokens : int
        Length of a prompt, roughly.

    Raises
    ------
    UserError
        For a task without a recipe, or no limit.
    """
    for task in tasks:
        if task not in recipes:
            raise unknown("task", task, recipes)
    if limit is None:
        raise UserError(f"limit=null has no end with data={name}, whose rows are drawn; give a number, e.g. limit=5")
    samples = {
        task: tuple(_sample(recipes[task], task, index, seed, tokens) for index in range(limit)) for task in tasks
    }
    return Benchmark(
        name=name,
        samples=samples,
        prompts={task: recipes[task].prompt for task in tasks},
        expected=dict.fromkeys(tasks, limit),
        sources={task: digest(rows) for task, rows in samples.items()},
    )


def _sample(recipe: Recipe, task: str, index: int, seed: int, tokens: int) -> Sample:
    # A string seed is hashed by `random` itself (sha512), the same in every process and Python version.
    draft = recipe.draw(random.Random(f"{seed}/{task}/{index}/{tokens}"), tokens)
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


def digest(rows: Sequence[Sample]) -> str:
    """sha256 of generated rows."""
    text = json.dumps([vars(row) for row in rows], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
