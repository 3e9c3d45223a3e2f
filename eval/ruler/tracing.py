"""Variable tracking: a chain of assignments in a long text; every variable with the first one's value is asked for."""

import random
import string

from eval.generated import Draft, Recipe
from eval.ruler import texts
from eval.ruler.tasks import TASKS
from eval.sample import TaskPrompt

HOPS = 4
LIMIT = TASKS["vt"].max_new_tokens

_EXAMPLE = """VAR QWXZA = 90817 The hill is steep and the lake is calm. VAR MNBVC = VAR QWXZA Here is the gate, there \
is the well. VAR PLOKI = VAR MNBVC
Which variables have the value 90817, directly or through other variables? There are 3: QWXZA, MNBVC, PLOKI"""

TEMPLATE = f"""Variables are assigned in a text. Follow the assignments.

{_EXAMPLE}

{{context}}
{{input}}"""


def variables(rng: random.Random, count: int) -> list[str]:
    """Different names of five capital letters."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_uppercase, k=5))] = None
    return list(found)


def vt(rng: random.Random, tokens: int) -> Draft:
    """One chain of HOPS + 1 variables in RULER's noise."""
    names, value = variables(rng, HOPS + 1), str(rng.randrange(10_000, 100_000))
    chain = [
        f"VAR {name} = {before}" for name, before in zip(names, [value, *(f"VAR {n}" for n in names)], strict=False)
    ]
    text = f"Which variables have the value {value}, directly or through other variables? There are {len(names)}:"
    room = tokens - LIMIT - texts.size(TEMPLATE + text) - 2 * sum(map(texts.size, chain))  # letters are tokens of two
    context = " ".join(texts.scatter(rng, texts.take(texts.noise(), room), chain))
    return Draft(text, context, tuple(names))


TASK_RECIPES = {"vt": Recipe(TaskPrompt(TEMPLATE, LIMIT, chat=False), vt)}
