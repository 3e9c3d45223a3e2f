"""Texts with a known gist: a report with findings, a meeting with decisions, one event in several newspapers.

The gist stands word for word in the text, spread over its whole length, and the prompt opens the summary: a small
model then shows what it still finds, not how well it writes.
"""

import random

from eval.generated import Draft, Recipe
from eval.mini import words
from eval.mini.draft import size
from eval.mini.worlds import World
from eval.sample import TaskPrompt

# Points of a summary: about 90 tokens.
_POINTS = 4


def _point(world: World) -> str:
    town, thing, place = world.towns.draw(), world.things.draw(), world.pick(words.PLACES)
    return world.pick(
        (
            f"the {place} of {town} needs a {thing} before {world.pick(words.MONTHS)}",
            f"the {place} of {town} lost a {thing} to the {world.pick(words.WEATHER)}",
            f"the {place} of {town} was paid for with a {thing}",
        )
    )


def _sections(world: World, leads: list[str], tokens: int) -> list[str]:
    """One paragraph a lead, which stands somewhere inside."""
    room = tokens // len(leads)
    return [world.paragraph(lead, room) for lead in leads]


def gov_report(rng: random.Random, tokens: int) -> Draft:
    """A report in sections with one finding each."""
    world = World(rng)
    findings = [f"Finding {number}: {_point(world)}." for number in range(1, _POINTS + 1)]
    head = f"Report on the public buildings of the county, by {world.people.draw()}."
    sections = _sections(world, findings, tokens - size(head) - 20)
    gist = " ".join(findings).removeprefix("Finding 1: ")
    return Draft("", "\n\n".join([head, *sections]), (gist,))


def multi_news(rng: random.Random, tokens: int) -> Draft:
    """The same day in several newspapers."""
    world = World(rng)
    papers = rng.sample(("Herald", "Courier", "Gazette", "Mercury", "Observer", "Tribune"), _POINTS)
    leads = [f"The {paper} reports that {_point(world)}." for paper in papers]
    sections = _sections(world, leads, tokens - 30)
    opening = f"The {papers[0]} reports that"
    gist = " ".join(leads).removeprefix(f"{opening} ")
    return Draft(opening, "\n\n".join(sections), (gist,))


_TOPICS = (
    "the budget", "the roof", "the summer fair", "the archive", "the new staff", "the website", "the garden",
    "the safety rules", "the winter concert", "the heating", "the car park", "the library cards", "the logo",
    "the coffee machine", "the timetable", "the visitors", "the newsletter", "the printer", "the cleaning", "the keys",
)  # fmt: skip


def qmsum(rng: random.Random, tokens: int) -> Draft:
    """A meeting; asks what was agreed on one topic."""
    world = World(rng)
    speakers = [world.people.draw() for _ in range(4)]
    topics = rng.sample(_TOPICS, min(len(_TOPICS), max(4, tokens // 130)))
    agreed = [f"send a {world.things.draw()} to {world.towns.draw()} before {world.pick(words.MONTHS)}" for _ in topics]
    turns = []
    for topic, what in zip(topics, agreed, strict=True):
        turns += _turns(world, speakers, f"On {topic}, the group agreed to {what}.", (tokens - 60) // len(topics))
    example, asked = rng.sample(range(len(topics) - 1), 2)
    solved = f"Question: {_question(topics[example])} {agreed[example]}."
    return Draft(_question(topics[asked]), "\n".join([*turns, "", solved]), (f"{agreed[asked]}.",))


def _question(topic: str) -> str:
    return f"What was agreed on {topic}?\nAnswer: On {topic}, the group agreed to"


def _turns(world: World, speakers: list[str], decision: str, tokens: int) -> list[str]:
    lines = [*world.talk(tokens - size(decision) - 18), decision]
    lines.insert(world.rng.randint(0, len(lines) - 1), lines.pop())
    third = -(-len(lines) // 3)
    return [f"{world.pick(speakers)}: {' '.join(lines[at : at + third])}" for at in range(0, len(lines), third)]


TASKS = {
    "gov_report": Recipe(
        TaskPrompt("{context}{input}\n\nSummary of all findings. Finding 1:", 96, chat=False, stop_at_newline=True),
        gov_report,
    ),
    "qmsum": Recipe(TaskPrompt("{context}\n\nQuestion: {input}", 32, chat=False, stop_at_newline=True), qmsum),
    "multi_news": Recipe(
        TaskPrompt("{context}\n\nSummary of all newspapers: {input}", 96, chat=False, stop_at_newline=True), multi_news
    ),
}
