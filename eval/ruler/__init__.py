"""RULER-style data, drawn here by its published rules: needles, variable tracking, common and frequent words.

Hsieh et al. 2024, arXiv 2404.06654: numbers of keys, values, queries, hops, repetitions, and the scoring are its own
(share of the gold answers that stand in the prediction). Texts and prompts are not: prose of small worlds stands where
RULER has essays, so scores are not comparable with published ones.
"""

from collections.abc import Sequence
from dataclasses import replace

from eval.generated import Recipe, generate
from eval.ruler import aggregation, needles, tracing
from eval.ruler.tasks import TASKS
from eval.sample import Benchmark
from selkv.errors import UserError

RECIPES: dict[str, Recipe] = {**needles.TASK_RECIPES, **tracing.TASK_RECIPES, **aggregation.TASK_RECIPES}
SHORTEST, LONGEST = 512, 131_072


def load(tasks: Sequence[str], limit: int, seed: int = 0, tokens: int = 4096) -> Benchmark:
    """Draw the first rows of the tasks.

    Parameters
    ----------
    tasks : sequence of str
        Names of `eval.ruler.tasks.TASKS`.
    limit : int
        Rows a task; row i depends on (seed, task, i, tokens) alone. RULER draws 500.
    seed : int
    tokens : int
        Length of prompt and answer together, estimated without a tokenizer (`eval.ruler.texts.size`).

    Raises
    ------
    UserError
        For a length that no prompt can be made for.
    """
    if not SHORTEST <= tokens <= LONGEST:
        raise UserError(f"data.tokens={tokens} is not between {SHORTEST} and {LONGEST}, e.g. 4096 or 131072")
    drawn = generate("ruler", RECIPES, tasks, limit, seed, tokens)
    note = (
        f"RULER's rules (arXiv 2404.06654) with texts of its own and without question answering, about {tokens} tokens "
        "(estimated without a tokenizer); score: share of the gold answers found; not comparable with published scores"
    )
    return replace(drawn, expected={task: max(limit, TASKS[task].rows) for task in tasks}, notes=(note,))
