"""Numbered passages: count the different ones, find the one a sentence comes from."""

import random

from eval.generated import Draft, Recipe
from eval.mini.worlds import World
from eval.sample import TaskPrompt

# Tokens a passage.
_SPACING = 100


def _passage(world: World) -> str:
    """Talk, then a fact that ends with a name (no full stop): what follows the name is easily found by it."""
    fact = f"{world.spots.draw().capitalize()} stood a {world.things.draw()} of {world.people.draw()}"
    return f"{' '.join(world.talk(_SPACING - 22))} {fact}"


def passage_retrieval_en(rng: random.Random, tokens: int) -> Draft:
    """Which paragraph does a sentence come from?"""
    world = World(rng)
    texts = [_passage(world) for _ in range(max(4, (tokens - 80) // _SPACING))]
    numbered = [f"{text} (Paragraph {number})" for number, text in enumerate(texts, 1)]
    *examples, asked = rng.sample(range(len(texts) - 1), 3)
    solved = [f"Sentence: {_last(texts[index])} (Paragraph {index + 1})" for index in examples]
    return Draft(_last(texts[asked]), "\n\n".join([*numbered, *solved]), (f"Paragraph {asked + 1}",))


def _last(text: str) -> str:
    return text.split(". ")[-1]


def passage_count(rng: random.Random, tokens: int) -> Draft:
    """How many different paragraphs are there, some of them given more than once?"""
    world = World(rng)
    total = max(4, (tokens - 90) // _SPACING)
    texts = [_passage(world) for _ in range(rng.randint(2, total - 1))]
    different = len(texts)
    texts += rng.choices(texts, k=total - different)
    rng.shuffle(texts)
    numbered = [f"Paragraph {number}: {text}." for number, text in enumerate(texts, 1)]
    return Draft("", "\n".join(numbered), (str(different),))


_COUNT = """Count the different paragraphs.

Paragraph 1: A cat slept on the roof.
Paragraph 2: The baker sold his shop.
Paragraph 3: The baker sold his shop.
Paragraph 4: It rained all night.
Paragraph 5: A cat slept on the roof.
Different paragraphs: 3

{context}{input}
Different paragraphs:"""

TASKS = {
    "passage_count": Recipe(TaskPrompt(_COUNT, 6, chat=False, stop_at_newline=True), passage_count),
    "passage_retrieval_en": Recipe(
        TaskPrompt("{context}\n\nSentence: {input}", 8, chat=False, stop_at_newline=True), passage_retrieval_en
    ),
}
