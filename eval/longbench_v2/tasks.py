"""LongBench v2's questions by length and difficulty (Bai et al. 2024, arXiv 2412.15204): multiple choice, accuracy.

503 questions: 180 short, 215 medium, 108 long; 192 easy, 311 hard. How many each pair of the two has is read from the
file, so `rows` is 0 here.
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
