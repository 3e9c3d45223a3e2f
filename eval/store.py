"""The one writer of cells: appends whole lines, flushed to disk, under a lock that a second process respects."""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from filelock import FileLock, Timeout

from eval.records import Record, cells_file, latest, line_of, read
from selkv.errors import UserError


class Store:
    """Cells of one model and benchmark under ``results/cells``.

    Parameters
    ----------
    results : Path
    model, data : str
        Folder names.

    Nothing is written before it is entered (``with``), which raises a UserError where the folder cannot be written.
    """

    def __init__(self, results: Path, model: str, data: str) -> None:
        self.results, self.model, self.data = results, model, data
        self.folder = cells_file(results, model, data, "").parent
        self._lock = FileLock(self.folder / ".lock")

    def __enter__(self) -> "Store":
        """Take the lock; another run that holds it is named, nothing is overwritten."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UserError(
                f"another run is writing {self.folder}; wait for it, or give this one results=OTHER_FOLDER"
            ) from None
        except OSError as problem:
            raise UserError(
                f"results={self.results} cannot be written ({problem.strerror}); give results=FOLDER"
            ) from None
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Release the lock."""
        self._lock.release()

    def path(self, dataset: str) -> Path:
        """File of a dataset's cells."""
        return cells_file(self.results, self.model, self.data, dataset)

    def stored(self, dataset: str) -> dict[str, Record]:
        """Cells of a dataset by key."""
        return latest(read(self.path(dataset)))

    def append(self, dataset: str, records: Iterable[Record]) -> None:
        """Write records and wait until they are on disk.

        A torn last line, left by a killed process, is cut first, so that no record is glued to it.

        Raises
        ------
        UserError
            When the disk is full or the file cannot be written; what was written before stays.
        """
        data = b"".join(line_of(record) for record in records)
        if not data:
            return
        path = self.path(dataset)
        try:
            with open(path, "a+b") as file:
                whole = _end_of_last_line(file)
                if whole != file.seek(0, os.SEEK_END):
                    file.truncate(whole)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise UserError(
                f"{path} cannot be written ({problem.strerror}); nothing written before is lost. Free space or "
                "give results=FOLDER, then run the same command again: it continues"
            ) from None


def _end_of_last_line(file: BinaryIO, block: int = 65536) -> int:
    """Offset just after the last newline; what lies behind it is a torn line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - block)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
