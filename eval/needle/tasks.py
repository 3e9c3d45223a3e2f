"""The one task of the needle in a haystack: category, generation limit, string match (as RULER's needles)."""

from eval.tasks import Task

TASKS: dict[str, Task] = {
    "needle": Task("needle", "Retrieval", "contains", "en", 32, chat=False, mean=True, short="Needle")
}
