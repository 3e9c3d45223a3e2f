"""Common words in a list, frequent words in a coded text."""

import random
import string

from eval.generated import Draft, Recipe
from eval.ruler import texts
from eval.ruler.tasks import TASKS
from eval.sample import TaskPrompt

COMMON = 10  # words that are asked for
REPEATS, OTHERS = 30, 3  # how often a common word stands in the list, and any other
FULL = 4096  # tokens from which the list holds that many; shorter ones get their share
ALPHA = 2.0  # of the zeta distribution of coded words
ZETA = 1.6449340668482264  # zeta(2)
FREQUENT = 3
CODED_TOKENS = 4  # a random word of six letters

_CWE = """Some words of a numbered list stand in it more often than the others. Remember them.

1. violin 2. harbour 3. violin 4. copper 5. harbour 6. violin 7. harbour 8. marsh
What are the 2 most common words of the list? They are: violin, harbour

{context}
{input}"""

_FWE = """Count how often each coded word occurs in the following text; the dots .... are no words.

{context}

{input}"""


def cwe(rng: random.Random, tokens: int) -> Draft:
    """Ten words often, all others seldom, in a shuffled list."""
    text = f"What are the {COMMON} most common words of the list? They are:"
    room = tokens - TASKS["cwe"].max_new_tokens - texts.size(_CWE + text)
    repeats, others = (REPEATS, OTHERS) if tokens >= FULL else (max(2, REPEATS * tokens // FULL), 1)
    digits = len(str(room // 6))
    pool = iter(texts.names(rng, COMMON + max(0, room) // 6))
    common = [next(pool) for _ in range(COMMON)]
    listed = [word for word in common for _ in range(repeats)]
    room -= sum(texts.size(word) + digits + 1 for word in listed)
    for word in pool:
        room -= others * (texts.size(word) + digits + 2)
        if room < 0:
            break
        listed += [word] * others
    rng.shuffle(listed)
    context = " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1))
    return Draft(text, context, tuple(common))


def fwe(rng: random.Random, tokens: int) -> Draft:
    """Coded words with zeta-distributed counts; the most frequent one is dots, the next three are asked for."""
    text = f"What are the {FREQUENT} most frequent coded words? They are:"
    room = tokens - TASKS["fwe"].max_new_tokens - texts.size(_FWE + text)
    # the share of the dots, one token each, is 1 / ZETA
    count = max(60, round(room / (1 / ZETA + CODED_TOKENS * (1 - 1 / ZETA))))
    ranks = [round(count / ZETA / rank**ALPHA) for rank in range(1, count + 1)]
    words = ["....", *_coded(rng, sum(map(bool, ranks)) - 1)]
    shuffled = [word for word, times in zip(words, ranks, strict=False) for _ in range(times)]
    rng.shuffle(shuffled)
    return Draft(text, " ".join(shuffled), tuple(words[1 : 1 + FREQUENT]))


def _coded(rng: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=6))] = None
    return list(found)


TASK_RECIPES = {
    "cwe": Recipe(TaskPrompt(_CWE, TASKS["cwe"].max_new_tokens, chat=False), cwe),
    "fwe": Recipe(TaskPrompt(_FWE, TASKS["fwe"].max_new_tokens, chat=False), fwe),
}
