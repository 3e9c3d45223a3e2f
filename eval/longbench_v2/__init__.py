"""LongBench v2: multiple choice over long texts, from the user's file; prompts of this project's own wording.

Bai et al. 2024, arXiv 2412.15204. A dataset is a length class and a difficulty, as the published tables break down the
accuracy; the average over datasets is not the published overall accuracy, which is the mean over questions.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eval.longbench import draw
from eval.longbench_v2.tasks import DIFFICULTIES, LENGTHS, QUESTIONS, TASKS
from eval.sample import Benchmark, Sample, TaskPrompt
from selkv.errors import Missing, UserError

LETTERS = ("A", "B", "C", "D")
FIELDS = ("context", "question", *(f"choice_{letter}" for letter in LETTERS), "answer", "difficulty", "length")

TEMPLATE = """Here is a text, followed by a question about it.

{context}

{input}"""

FORMAT = f"a question is a JSON object with the texts {', '.join(FIELDS)}, in a list or one a line"

ASK = "Exactly one choice is right. Reply with its letter only, like this: The answer is (A)"


def load(
    tasks: Sequence[str],
    limit: int | None = None,
    seed: int = 0,
    first: bool = False,
    path: str | None = None,
) -> Benchmark:
    """Questions of a local file.

    Parameters
    ----------
    tasks : sequence of str
        Names of `eval.longbench_v2.tasks.TASKS`.
    limit : int, optional
        Questions a dataset (`eval.longbench.draw`); all by default.
    seed : int
        Of the draw.
    first : bool
        Take the first `limit` instead.
    path : str
        ``data.json`` (a JSON list), its folder, or JSON lines.

    Raises
    ------
    UserError
        Without a file, or for a row that is no question, with file and row.
    """
    if path is None:
        raise Missing("data.path is not set; give the file of LongBench v2 (data.json of THUDM/LongBench-v2)")
    place = Path(path).expanduser()
    file = place / "data.json" if place.is_dir() else place
    try:
        data = file.read_bytes()
    except OSError as problem:
        raise UserError(
            f"data.path={path}: {file} cannot be read ({problem.strerror}); give the file of LongBench v2 or its folder"
        ) from None
    if not data.strip():
        raise UserError(f"{file}: the file is empty; {FORMAT}")
    rows = list(_rows(data, str(file)))
    samples = {task: tuple(row for row in rows if row.dataset == task) for task in tasks}
    expected = {task: len(found) for task, found in samples.items()}
    kept = {task: found for task, found in samples.items() if found}
    if not kept:
        raise UserError(
            f"{file}: none of its {len(rows)} questions belongs to {', '.join(tasks)}; choose other data.tasks"
        )
    if limit is not None:
        kept = {task: found[:limit] if first else draw(found, limit, seed) for task, found in kept.items()}
    notes = ["prompts: own wording; the average is over lengths and difficulties, not the published one over questions"]
    if len(rows) != QUESTIONS:
        notes.append(f"{file.name}: the file has {len(rows)} questions, LongBench v2 has {QUESTIONS}")
    return Benchmark(
        name="longbench_v2",
        samples=kept,
        prompts={task: TaskPrompt(TEMPLATE, TASKS[task].max_new_tokens, TASKS[task].chat) for task in kept},
        expected={task: expected[task] for task in kept},
        sources=dict.fromkeys(kept, hashlib.sha256(data).hexdigest()),
        notes=tuple(notes),
    )


def _rows(data: bytes, origin: str) -> Iterator[Sample]:
    counts: dict[str, int] = {}
    for number, row in enumerate(_parsed(data, origin), 1):
        _check(row, f"{origin}: question {number}")
        dataset = f"{row['length']}_{row['difficulty']}"
        index = counts.setdefault(dataset, 0)
        counts[dataset] += 1
        choices = "\n".join(f"({letter}) {row[f'choice_{letter}']}" for letter in LETTERS)
        yield Sample(
            id=str(row.get("_id", f"{dataset}-{index}")),
            dataset=dataset,
            input=f"Question: {row['question']}\n{choices}\n\n{ASK}",
            context=row["context"],
            answers=(row["answer"],),
            length=len(row["context"].split()),
            language="en",
            index=index,
        )


def _parsed(data: bytes, origin: str) -> Iterator[Any]:
    """Objects of a JSON list, or of JSON lines."""
    try:
        if data.lstrip()[:1] == b"[":
            yield from json.loads(data)
            return
    except (ValueError, RecursionError) as error:
        raise UserError(f"{origin}: not a JSON list ({error}); {FORMAT}") from error
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{origin}:{number}: not a line of JSON ({error}); {FORMAT}") from error


def _check(row: Any, where: str) -> None:
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object is needed, not {type(row).__name__}; {FORMAT}")
    if missing := [name for name in FIELDS if not isinstance(row.get(name), str)]:
        raise UserError(f"{where}: no text in field {', '.join(missing)}; {FORMAT}")
    for name, allowed in (("answer", LETTERS), ("length", LENGTHS), ("difficulty", DIFFICULTIES)):
        if row[name] not in allowed:
            raise UserError(f"{where}: {name} is {row[name]!r}; it must be one of {', '.join(allowed)}")
