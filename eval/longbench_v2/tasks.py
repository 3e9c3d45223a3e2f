"""LongBench v2's questions by length and difficulty (Bai et al. 2024, arXiv 2412.15204): multiple choice, accuracy.

The counts are those of the 503 published questions, where known: 180 short, 215 medium, 108 long; 192 easy, 311 hard.
"""

from eval.tasks import Task

LENGTHS, DIFFICULTIES = ("short", "medium", "long"), ("easy", "hard")
QUESTIONS = 503

TASKS: dict[str, Task] = {
    f"{length}_{difficulty}": Task(
        f"{length}_{difficulty}", length.capitalize(), "choice", "en", 128, rows=0, short=difficulty.capitalize()
    )
    for length in LENGTHS
    for difficulty in DIFFICULTIES
}
