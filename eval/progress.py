"""Progress of a run: a live bar on a terminal, a line a minute in a log file, JSON lines for other programs."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from eval.records import Record

EVERY = 60.0  # seconds between lines of a log file


class Meter:
    """Counts cells and generated tokens, and shows them.

    Parameters
    ----------
    total : int
        Cells to compute.
    events : str or None
        ``json`` writes one JSON object a line to standard output instead of a bar.
    clock : callable
        Seconds; tests give their own.
    """

    def __init__(self, total: int, events: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done, self.tokens, self.failed = total, 0, 0, 0
        self.events, self.clock, self.what = events, clock, ""
        self.started = self.shown = clock()
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.console,
            disable=events is not None or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=total, rate="")

    def __enter__(self) -> "Meter":
        """Start showing."""
        self.bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop showing; the last state stays."""
        self.bar.stop()

    def say(self, what: str) -> None:
        """Name what is being worked on: task and methods."""
        self.what = what
        self._show()

    def advance(self, cells: int) -> None:
        """Count finished cells."""
        self.done += cells
        self._show()

    def count(self, records: Sequence[Record]) -> None:
        """Count generated tokens and failed cells."""
        self.tokens += sum(record.generated for record in records)
        self.failed += sum(record.error is not None for record in records)

    @property
    def rate(self) -> str:
        """Tokens a second over the run, all rows of all batches together, and resident memory."""
        elapsed = max(self.clock() - self.started, 1e-9)
        return f"{self.tokens / elapsed:.0f} tok/s {psutil.Process().memory_info().rss / 2**30:.1f} GiB"

    @property
    def left(self) -> float:
        """Seconds that remain at the rate so far; not a number before the first cell."""
        elapsed = self.clock() - self.started
        return elapsed / self.done * (self.total - self.done) if self.done else float("nan")

    def _show(self) -> None:
        self.bar.update(self.task, completed=self.done, description=self.what, rate=self.rate)
        now = self.clock()
        if self.events == "json":
            event = {"event": "progress", "done": self.done, "total": self.total, "task": self.what}
            print(json.dumps(event | {"tokens": self.tokens, "failed": self.failed}), flush=True)
        elif self.bar.disable and (now - self.shown >= EVERY or self.done == self.total):
            self.shown = now
            print(
                f"{self.done}/{self.total} cells, {self.what}, {self.rate}, about {self.left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
