"""Numbered passages: count the different ones, find the one a sentence comes from."""

import random

from eval.mini.draft import Draft, Recipe
from eval.mini.worlds import World
from eval.sample import TaskPrompt

# Tokens a passage.
_SPACING = 100


def _passage(world: World) -> str:
    fact = f"{world.people.draw()} left a {world.things.draw()} {world.spots.draw()}."
    return f"{' '.join(world.talk(_SPACING - 22))} {fact}"


def passage_retrieval_en(rng: random.Random, tokens: int) -> Draft:
    """Which paragraph does a sentence come from?"""
    world = World(rng)
    texts = [_passage(world) for _ in range(max(4, (tokens - 50) // _SPACING))]
    numbered = [f"{text} (Paragraph {number})" for number, text in enumerate(texts, 1)]
    one, two = rng.sample(range(len(texts) - 1), 2)
    example = f"Sentence: {_last(texts[one])} (Paragraph {one + 1})"
    return Draft(_last(texts[two]), "\n\n".join([*numbered, example]), (f"Paragraph {two + 1}",))


def _last(text: str) -> str:
    return text.split(". ")[-1]


def passage_count(rng: random.Random, tokens: int) -> Draft:
    """How many different paragraphs are there, some of them given more than once?"""
    world = World(rng)
    total = max(4, (tokens - 40) // _SPACING)
    texts = [_passage(world) for _ in range(rng.randint(2, total - 1))]
    different = len(texts)
    texts += rng.choices(texts, k=total - different)
    rng.shuffle(texts)
    numbered = [f"Paragraph {number}: {text}" for number, text in enumerate(texts, 1)]
    return Draft("", "\n\n".join(numbered), (str(different),))


TASKS = {
    "passage_count": Recipe(
        TaskPrompt(
            "{context}{input}\n\nSome paragraphs are repeated. The number of different paragraphs is",
            6,
            chat=False,
            stop_at_newline=True,
        ),
        passage_count,
    ),
    "passage_retrieval_en": Recipe(
        TaskPrompt("{context}\n\nSentence: {input}", 8, chat=False, stop_at_newline=True), passage_retrieval_en
    ),
}
