"""The built-in data: rows in LongBench's format for its 16 English tasks, drawn from small worlds by a seed.

Own texts and own prompts under LongBench's task names, scored by its metrics; the scores are not comparable with
published ones. Measured on the embedded model: docs/results.md.
"""

from collections.abc import Sequence

from eval.generated import Recipe, generate
from eval.mini import code, fewshot, qa, summaries, synthetic
from eval.sample import Benchmark

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
    return generate("mini", RECIPES, tasks, limit, seed, tokens)
