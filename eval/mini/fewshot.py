"""Solved examples, then one more of the same kind: question types, passages with a question, dialogues."""

import random

from eval.generated import Draft, Recipe
from eval.mini import words
from eval.mini.draft import size
from eval.mini.worlds import World
from eval.sample import TaskPrompt


def _who(world: World) -> str:
    return f"Who painted the {world.things.draw()} in the {world.pick(words.PLACES)}?"


def _where(world: World) -> str:
    return f"Where did {world.people.draw()} leave the {world.things.draw()}?"


def _when(world: World) -> str:
    return f"When did the {world.pick(words.PLACES)} of {world.towns.draw()} close?"


def _many(world: World) -> str:
    return f"How many {world.pick(words.SUBJECTS)} seeds fit into a {world.things.draw()}?"


def _why(world: World) -> str:
    return f"Why was {world.people.draw()} so {world.pick(words.MOODS)} about the {world.pick(words.WEATHER)}?"


def _colour(world: World) -> str:
    return f"What color is the {world.pick(words.PLACES)} in {world.towns.draw()}?"


# Every class opens with the same word, so that the first token (see eval.mini.qa) does not decide.
_KINDS = {
    "a person": _who,
    "a place": _where,
    "a date": _when,
    "a number": _many,
    "a reason": _why,
    "a color": _colour,
}


def trec(rng: random.Random, tokens: int) -> Draft:
    """Which kind of thing does a question ask for?"""
    world = World(rng)
    kinds = list(_KINDS)
    shots: list[str] = []
    room = tokens - 35
    while room > 0:
        if len(shots) % len(kinds) == 0:
            rng.shuffle(kinds)
        kind = kinds[len(shots) % len(kinds)]
        shots.append(f"Question: {_KINDS[kind](world)}\nType: {kind}\n")
        room -= size(shots[-1]) + 4
    asked = rng.choice(kinds)
    return Draft(f"Question: {_KINDS[asked](world)}\nType:", "\n".join(shots), (asked,), all_classes=tuple(_KINDS))


def triviaqa(rng: random.Random, tokens: int) -> Draft:
    """Passages with a solved question each, the last one unsolved."""
    world = World(rng)
    shots = [_trivia(world) for _ in range(max(2, tokens // 100))]
    *solved, (passage, question, answer) = shots
    context = "\n\n".join(f"Passage: {p}\nQuestion: {q}\nAnswer: {a}" for p, q, a in solved)
    return Draft(f"Question: {question}\nAnswer:", f"{context}\n\nPassage: {passage}\n", (answer,))


def _trivia(world: World) -> tuple[str, str, str]:
    name, thing, town = world.people.draw(), world.things.draw(), world.towns.draw()
    fact, question, answer = world.rng.choice(
        (
            (f"{name} lost a {thing} in {town}.", f"What did {name} lose in {town}?", f"a {thing}"),
            (f"A {thing} made the town of {town} famous.", f"What made the town of {town} famous?", f"a {thing}"),
            (f"In {town} {name} inherited a {thing}.", f"What did {name} inherit in {town}?", f"a {thing}"),
        )
    )
    return world.paragraph(fact, 70), question, answer


_ASKS = (
    "Are you free on {day}?",
    "Do you have plans for {day}?",
    "What are you doing on {day}?",
)
_FREE = ("Nothing special, why?", "I am free all day.", "I have time, what is it?", "Only in the evening I am busy.")
_PLANS = (
    "Come to the {place} then, and bring the {thing}.",
    "Then meet me at the {place}. Please take the {thing} with you.",
    "Good. I need the {thing}, can you bring it to the {place}?",
)
_REPLIES = ("Sure, no problem.", "Of course, see you there!", "Fine, I will be there.", "With pleasure.")


def samsum(rng: random.Random, tokens: int) -> Draft:
    """Short chats with one-sentence summaries, the last one without."""
    world = World(rng)
    chats = [_chat(world) for _ in range(max(2, (tokens - 20) // 76))]
    *solved, (asked, summary) = chats
    context = "\n".join(f"Dialogue: {chat}\nSummary: {gist}\n" for chat, gist in solved)
    return Draft(f"Dialogue: {asked}\nSummary:", context, (summary,))


def _chat(world: World) -> tuple[str, str]:
    one, two = (world.people.draw().split()[0] for _ in range(2))
    day, place, thing = world.pick(words.DAYS), world.pick(words.PLACES), world.things.draw()
    lines = (
        f"{one}: {world.pick(_ASKS).format(day=day)}",
        f"{two}: {world.pick(_FREE)}",
        f"{one}: {world.pick(_PLANS).format(place=place, thing=thing)}",
        f"{two}: {world.pick(_REPLIES)}",
    )
    return "\n".join(lines), f"{two} will bring the {thing} to {one} at the {place} on {day}."


_BARE = "{context}\n{input}"

TASKS = {
    "trec": Recipe(TaskPrompt(_BARE, 8, chat=False, stop_at_newline=True), trec),
    "triviaqa": Recipe(TaskPrompt(_BARE, 12, chat=False, stop_at_newline=True), triviaqa),
    "samsum": Recipe(TaskPrompt(_BARE, 32, chat=False, stop_at_newline=True), samsum),
}
