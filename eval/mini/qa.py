"""Questions about one document and about several, each answered by a fact that stands once in the text.

The document is followed by two solved questions of the same kind: a small model completes far better than it obeys.
Answers open with an article, so that the first token, which comes from the whole cache in every method, gives nothing
away.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from eval.generated import Draft, Recipe
from eval.mini import words
from eval.mini.draft import size
from eval.mini.worlds import World
from eval.sample import TaskPrompt


class Fact(NamedTuple):
    """Paragraphs that hold one fact (a hop each), the question with the opening of its answer, and the rest of it."""

    paragraphs: tuple[str, ...]
    question: str
    opening: str
    answer: str


# About so many tokens a fact with its paragraphs: five or six compete in a prompt of 800.
_SPACING = 115
_SOLVED = 2
# Tokens of a question with its answer.
_QUESTION = 32


def _ask(rng: random.Random, tokens: int, head: str, draw: Callable[[World, int], Fact]) -> Draft:
    world = World(rng)
    room = tokens - size(head) - (_SOLVED + 1) * _QUESTION
    count = max(_SOLVED + 2, round(room / _SPACING))
    facts = [draw(world, room // count) for _ in range(count)]
    # The end of the text is never asked for: methods that keep it would hold the fact.
    *examples, asked = rng.sample(facts[:-1], _SOLVED + 1)
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


def _deed(world: World, tokens: int) -> Fact:
    name, thing, past = world.people.draw(), world.things.draw(), world.pick([*_DEEDS])
    text = world.paragraph(f"{name} {past} a {thing} {world.spots.draw()}.", tokens)
    return Fact((text,), f"What did {name} {_DEEDS[past]}?", f"{name} {past}", f"a {thing}")


def narrativeqa(rng: random.Random, tokens: int) -> Draft:
    """A chronicle of small deeds; asks what one person found, hid, lost ..."""
    return _ask(rng, tokens, "This is the story of one year in a small town.", _deed)


def _trial(world: World, tokens: int) -> Fact:
    name, tool, subject = world.people.draw(), world.things.draw(), world.pick(words.SUBJECTS)
    text = world.paragraph(f"The {subject} trial of {name} used a {tool} for {world.rng.randint(3, 40)} weeks.", tokens)
    return Fact(
        (text,),
        f"Which instrument did the {subject} trial of {name} use?",
        f"The {subject} trial of {name} used",
        f"a {tool}",
    )


def qasper(rng: random.Random, tokens: int) -> Draft:
    """A research report on several trials; asks for the instrument of one."""
    return _ask(rng, tokens, "Abstract. We report on field trials and the instruments that they used.", _trial)


_FIELDS = (
    (
        "A guide to the painters of the county.",
        "What does the best picture by {} show?",
        "The best picture by {} shows",
    ),
    ("Cases before the county courts.", "What was the case of {} about?", "The case of {} was about"),
    ("New patents of the year.", "What does the patent of {} improve?", "The patent of {} improves"),
    ("Lost property at the railway.", "What did {} leave on the train?", "{} left on the train"),
)


def multifieldqa_en(rng: random.Random, tokens: int) -> Draft:
    """A register of one of several fields, person by person."""
    head, question, opening = rng.choice(_FIELDS)

    def entry(world: World, tokens: int) -> Fact:
        name, thing = world.people.draw(), world.things.draw()
        text = world.paragraph(f"{opening.format(name)} a {thing}.", tokens)
        return Fact((text,), question.format(name), opening.format(name), f"a {thing}")

    return _ask(rng, tokens, head, entry)


def _home(world: World, tokens: int) -> Fact:
    name, town, river = world.people.draw(), world.towns.draw(), world.rivers.draw()
    first = world.paragraph(f"The home of {name} is {town}.", tokens // 2 - 9)
    second = world.paragraph(f"{town} ({river}) is a {world.pick(words.ADJECTIVES)} town.", tokens // 2 - 9)
    return Fact(
        (first, second),
        f"In which town, on which river, is the home of {name}?",
        f"The home of {name} is",
        f"{town} ({river})",
    )


def hotpotqa(rng: random.Random, tokens: int) -> Draft:
    """From a person to a town to its river."""
    return _ask(rng, tokens, "The names of rivers stand in brackets.", _home)


def _pupil(world: World, tokens: int) -> Fact:
    name, teacher, instrument = world.people.draw(), world.people.draw(), world.instruments.draw()
    first = world.paragraph(f"The teacher of {name} is {teacher}.", tokens // 2 - 9)
    second = world.paragraph(
        f"{teacher} ({instrument}) gives a concert every {world.pick(words.MONTHS)}.", tokens // 2 - 9
    )
    question = f"Who, on which instrument, is the teacher of {name}?"
    return Fact((first, second), question, f"The teacher of {name} is", f"{teacher} ({instrument})")


def two_wiki_mqa(rng: random.Random, tokens: int) -> Draft:
    """From a pupil to a teacher to the teacher's instrument."""
    return _ask(rng, tokens, "The instruments of musicians stand in brackets.", _pupil)


def _ship(world: World, tokens: int) -> Fact:
    name, ship, town = world.people.draw(), world.ships.draw(), world.towns.draw()
    first = world.paragraph(f"The ship of {name} is the {ship}.", tokens // 2 - 9)
    second = world.paragraph(f"The {ship} ({town}) has {world.rng.randint(2, 9)} sails.", tokens // 2 - 9)
    question = f"Which, from which port, is the ship of {name}?"
    return Fact((first, second), question, f"The ship of {name} is", f"the {ship} ({town})")


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
