"""Needle tasks: secrets of named things in a long text; one, several or all of them are asked for."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from eval.generated import Draft, Recipe
from eval.ruler import texts
from eval.ruler.tasks import TASKS
from eval.sample import TaskPrompt

Drawn = Callable[[random.Random, int], list[str]]

TEMPLATE = """Secrets of some things are hidden in the following text. Remember them: they will be asked for.

{context}

{input}"""


class Variant(NamedTuple):
    """RULER's settings of one needle task: what surrounds the needles, and how many keys, values, queries there are."""

    haystack: str
    keys: int = 1
    values: int = 1
    queries: int = 1
    key: Drawn = texts.names
    value: Drawn = texts.numbers


VARIANTS = {
    "niah_single_1": Variant("noise"),
    "niah_single_2": Variant("prose"),
    "niah_single_3": Variant("prose", value=texts.uuids),
    "niah_multikey_1": Variant("prose", keys=4),
    "niah_multikey_2": Variant("needles"),
    "niah_multikey_3": Variant("needles", key=texts.uuids, value=texts.uuids),
    "niah_multivalue": Variant("prose", values=4),
    "niah_multiquery": Variant("prose", keys=4, queries=4),
}


def needle(key: str, value: str) -> str:
    """The sentence that is hidden."""
    return f"One secret of {key} is {value}."


def question(keys: Sequence[str], several: bool) -> str:
    """The question and the opening of its answer."""
    listed = keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"
    if several:
        return f"What are all the secrets of {listed} in the text? All the secrets of {listed} in the text are"
    return f"What is the secret of {listed} in the text? The secret of {listed} in the text is"


def draw(rng: random.Random, tokens: int, name: str) -> Draft:
    """One row of a needle task."""
    of, task = VARIANTS[name], TASKS[name]
    keys = of.key(rng, of.keys)
    secrets = {key: of.value(rng, of.values) for key in keys}
    needles = [needle(key, value) for key, values in secrets.items() for value in values]
    rng.shuffle(needles)
    asked = rng.sample(keys, of.queries)
    text = question(asked, of.values * of.queries > 1)
    room = tokens - task.max_new_tokens - texts.size(TEMPLATE + text) - sum(map(texts.size, needles))
    filler = texts.take(_haystack(rng, of, room, set(keys)), room)
    return Draft(
        text, " ".join(texts.scatter(rng, filler, needles)), tuple(value for key in asked for value in secrets[key])
    )


def _haystack(rng: random.Random, of: Variant, room: int, taken: set[str]) -> Iterator[str]:
    if of.haystack == "noise":
        return texts.noise()
    if of.haystack == "prose":
        return texts.prose(rng)
    most = max(0, room) // 12  # no needle is shorter
    keys = [key for key in of.key(rng, most) if key not in taken]
    return map(needle, keys, of.value(rng, len(keys)))


TASK_RECIPES = {
    name: Recipe(TaskPrompt(TEMPLATE, TASKS[name].max_new_tokens, chat=False), partial(draw, name=name))
    for name in VARIANTS
}
