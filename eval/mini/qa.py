"""Questions about one document and about several, each answered by a fact that stands once in the text.

The document is followed by one solved question of the same kind: a small model completes far better than it obeys.
Answers open with an article, so that the first token, which comes from the whole cache in every method, gives nothing
away.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from eval.mini import words
from eval.mini.draft import Draft, Recipe
from eval.mini.worlds import World
from eval.sample import TaskPrompt


class Fact(NamedTuple):
    """Paragraphs that hold one fact (a hop each), the question with the opening of its answer, and the rest of it."""

    paragraphs: tuple[str, ...]
    question: str
    opening: str
    answer: str


# Tokens a fact with its paragraphs: six compete in a prompt of 800 tokens.
_SPACING = 120


def _ask(rng: random.Random, tokens: int, head: str, draw: Callable[[World], Fact], solved: int = 1) -> Draft:
    world = World(rng)
    facts = [draw(world) for _ in range(max(solved + 2, (tokens - 40 * solved - 40) // _SPACING))]
    # The end of the text is never asked for: methods that keep it would hold the fact.
    *examples, asked = rng.sample(facts[:-1], solved + 1)
    hops = [p for fact in facts for p in fact.paragraphs]
    if len(hops) > len(facts):
        rng.shuffle(hops)
        while hops[-1] in asked.paragraphs:
            rng.shuffle(hops)
        hops = [f"Passage {number}: {hop}" for number, hop in enumerate(hops, 1)]
    pairs = (f"Question: {f.question}\nAnswer: {f.opening} {f.answer}." for f in examples)
    return Draft(f"{asked.question}\nAnswer: {asked.opening}", "\n\n".join([head, *hops, *pairs]), (asked.answer,))


_DEEDS = {
    "found": "find",
    "bought": "buy",
    "hid": "hide",
    "lost": "lose",
    "repaired": "repair",
    "painted": "paint",
    "borrowed": "borrow",
    "dropped": "drop",
}


def _deed(world: World) -> Fact:
    name, thing, past = world.people.draw(), world.things.draw(), world.pick([*_DEEDS])
    text = world.paragraph(f"{name} {past} a {thing} {world.spots.draw()}.", _SPACING)
    return Fact((text,), f"What did {name} {_DEEDS[past]}?", f"{name} {past}", f"a {thing}")


def narrativeqa(rng: random.Random, tokens: int) -> Draft:
    """A chronicle of small deeds; asks what one person found, hid, lost ..."""
    return _ask(rng, tokens, "This is the story of one year in a small town.", _deed)


def _trial(world: World) -> Fact:
    subject, tool = world.subjects.draw(), world.things.draw()
    text = world.paragraph(
        f"The {subject} trial of {world.people.draw()} relied on a {tool} for {world.rng.randint(3, 40)} weeks.",
        _SPACING,
    )
    return Fact(
        (text,), f"Which instrument did the {subject} trial rely on?", f"The {subject} trial relied on", f"a {tool}"
    )


def qasper(rng: random.Random, tokens: int) -> Draft:
    """A research report on several trials; asks for the instrument of one."""
    return _ask(rng, tokens, "Abstract. We report on field trials and the instruments that they relied on.", _trial)


_FIELDS = (
    ("A guide to the towns of the county.", "What do visitors to {} come to see?", "Visitors to {} come to see"),
    ("The yearbook of the county museums.", "What is the museum of {} proud of?", "The museum of {} is proud of"),
    ("Cases before the county courts.", "What did the court of {} quarrel about?", "The court of {} quarrelled about"),
    ("Lost property at the railway.", "What does the station of {} keep?", "The station of {} keeps"),
)


def multifieldqa_en(rng: random.Random, tokens: int) -> Draft:
    """A document of one of several fields, town by town."""
    head, question, opening = rng.choice(_FIELDS)

    def entry(world: World) -> Fact:
        town, thing = world.towns.draw(), world.things.draw()
        text = world.paragraph(f"{opening.format(town)} a {thing}.", _SPACING)
        return Fact((text,), question.format(town), opening.format(town), f"a {thing}")

    return _ask(rng, tokens, head, entry)


def _home(world: World) -> Fact:
    name, town, river = world.people.draw(), world.towns.draw(), world.rivers.draw()
    first = world.paragraph(f"{name} lives in {town}.", _SPACING // 2 - 9)
    second = world.paragraph(f"{town} ({river}) is a {world.pick(words.ADJECTIVES)} town.", _SPACING // 2 - 9)
    return Fact(
        (first, second), f"In which town, on which river, does {name} live?", f"{name} lives in", f"{town} ({river})"
    )


def hotpotqa(rng: random.Random, tokens: int) -> Draft:
    """From a person to a town to its river."""
    return _ask(rng, tokens, "The names of rivers stand in brackets.", _home)


def _pupil(world: World) -> Fact:
    name, teacher, instrument = world.people.draw(), world.people.draw(), world.instruments.draw()
    first = world.paragraph(f"{name} learned music from {teacher}.", _SPACING // 2 - 9)
    second = world.paragraph(
        f"{teacher} ({instrument}) gives a concert every {world.pick(words.MONTHS)}.", _SPACING // 2 - 9
    )
    question = f"From whom, playing which instrument, did {name} learn music?"
    return Fact((first, second), question, f"{name} learned music from", f"{teacher} ({instrument})")


def two_wiki_mqa(rng: random.Random, tokens: int) -> Draft:
    """From a pupil to a teacher to the teacher's instrument."""
    return _ask(rng, tokens, "The instruments of musicians stand in brackets.", _pupil)


def _ship(world: World) -> Fact:
    name, ship, town = world.people.draw(), world.ships.draw(), world.towns.draw()
    first = world.paragraph(f"{name} sails on the {ship}.", _SPACING // 2 - 9)
    second = world.paragraph(f"The {ship} ({town}) has {world.rng.randint(2, 9)} sails.", _SPACING // 2 - 9)
    question = f"On which ship, from which port, does {name} sail?"
    return Fact((first, second), question, f"{name} sails on", f"the {ship} ({town})")


def musique(rng: random.Random, tokens: int) -> Draft:
    """From a sailor to a ship to its home port."""
    return _ask(rng, tokens, "The home ports of ships stand in brackets.", _ship)


def _prompt(limit: int) -> TaskPrompt:
    return TaskPrompt("{context}\n\nQuestion: {input}", limit, chat=False, stop_at_newline=True)


TASKS = {
    "narrativeqa": Recipe(_prompt(12), narrativeqa),
    "qasper": Recipe(_prompt(12), qasper),
    "multifieldqa_en": Recipe(_prompt(12), multifieldqa_en),
    "hotpotqa": Recipe(_prompt(16), hotpotqa),
    "2wikimqa": Recipe(_prompt(16), two_wiki_mqa),
    "musique": Recipe(_prompt(16), musique),
}
