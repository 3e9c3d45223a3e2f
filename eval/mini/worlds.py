"""Small worlds: people, places and things drawn without replacement, and the talk that fills the space between."""

import random
from collections.abc import Sequence

from eval.mini import words
from eval.mini.draft import fill, size


class Bag:
    """Options in a seeded order; all are drawn before one comes again."""

    def __init__(self, rng: random.Random, options: Sequence[str]) -> None:
        self._rng = rng
        self._options = options
        self._left: list[str] = []

    def draw(self) -> str:
        """Next option."""
        self._left = self._left or self._rng.sample(self._options, len(self._options))
        return self._left.pop()


class Deck:
    """Names put together from parts, each name once; short worlds share as few parts as possible."""

    def __init__(self, rng: random.Random, form: str, *parts: Sequence[str], prefixes: Sequence[str] = ("",)) -> None:
        self._form = form
        self._bags = [Bag(rng, part) for part in parts]
        self._prefixes = Bag(rng, prefixes)
        self._seen: set[str] = set()

    def draw(self) -> str:
        """Next name; a prefix tells apart what would otherwise be the same."""
        name = self._form.format(*(bag.draw() for bag in self._bags))
        while name in self._seen:
            name = self._prefixes.draw() + self._form.format(*(bag.draw() for bag in self._bags))
        self._seen.add(name)
        return name


class World:
    """Decks of everything that a text may name, from one source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.people = Deck(rng, "{} {}", words.FIRST, words.LAST)
        self.towns = Deck(rng, "{}", words.TOWNS, prefixes=words.TOWN_PREFIXES)
        self.rivers = Deck(rng, "{}", words.RIVERS, prefixes=words.RIVER_PREFIXES)
        self.subjects = Deck(rng, "{}", words.SUBJECTS, prefixes=words.SUBJECT_PREFIXES)
        self.things = Deck(rng, "{} {}", words.MATERIALS, words.OBJECTS)
        self.instruments = Deck(rng, "{}", words.INSTRUMENTS, prefixes=words.INSTRUMENT_PREFIXES)
        self.ships = Deck(rng, "{}", words.SHIPS, prefixes=words.SHIP_PREFIXES)
        self.spots = Deck(rng, "{} the {} {}", words.SIDES, words.ADJECTIVES, words.PLACES)

    def pick(self, options: Sequence[str]) -> str:
        """One of the options, drawn with replacement."""
        return self.rng.choice(options)

    def chatter(self) -> str:
        """A sentence that holds no fact anyone asks for."""
        return self.pick(_CHATTER).format(
            adjective=self.pick(words.ADJECTIVES),
            place=self.pick(words.PLACES),
            mood=self.pick(words.MOODS),
            weather=self.pick(words.WEATHER),
            month=self.pick(words.MONTHS),
            day=self.pick(words.DAYS),
        )

    def talk(self, tokens: int) -> list[str]:
        """Sentences of about so many tokens in all."""
        return fill(iter(self.chatter, ""), tokens)

    def paragraph(self, fact: str, tokens: int) -> str:
        """The fact somewhere among sentences that hold none."""
        sentences = self.talk(tokens - size(fact))
        sentences.insert(self.rng.randint(0, len(sentences)), fact)
        return " ".join(sentences)


_CHATTER = (
    "The {weather} had kept most people indoors, and the {place} was {adjective}.",
    "Nobody there remembered such {weather} in {month}.",
    "It was a {adjective} morning, and everyone felt {mood}.",
    "The road past the {place} was {adjective} at that hour.",
    "People spoke about the {weather} and little else.",
    "By {day} the mood had turned {mood} again.",
    "A {adjective} crowd had gathered at the {place} by noon.",
    "Most of the neighbours were {mood} about it.",
    "In {month} the {place} looks {adjective}, above all after {weather}.",
    "There was talk of closing the {place} before {month}.",
    "The children, {mood} as ever, stayed until the {weather} came.",
    "An old saying has it that {weather} in {month} brings a {adjective} year.",
    "Someone had left the door of the {place} open all night.",
    "The letters came late on {day}, as they did every {month}.",
    "From the {place} one could see how {adjective} the valley had become.",
    "Even the {mood} ones among the guests admired the {adjective} view.",
    "The newspaper promised {weather} for {day}, but nobody believed it.",
    "Supper was late, the talk was {mood}, and the {weather} went on.",
    "They had meant to mend the roof of the {place} since {month}.",
    "All of this was forgotten by {day}, when the {place} opened again.",
    "Whoever came through the {place} on {day} left with {adjective} shoes.",
    "The older people compared it with the {weather} of their youth.",
    "A {mood} dog slept in front of the {place} and let everyone pass.",
    "For once the {weather} had done no harm.",
    "The {adjective} street behind the {place} was swept twice that {month}.",
    "Two {mood} clerks counted the visitors and then counted them again.",
    "What the {place} lacked in comfort it made up for in company.",
    "Between {month} and the first {weather} there was hardly a quiet week.",
    "The choir sang in the {place}, a little late and rather {mood}.",
    "Somebody suggested a walk to the {place}, and nobody objected.",
    "Prices had gone up since {month}, which made the talk {mood}.",
    "It took until {day} to clear the {adjective} path of branches.",
)
