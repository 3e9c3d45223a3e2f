"""Places that results go to: tried before the work that would be lost, and told in one line where they refuse."""

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from selkv.errors import UserError


@contextmanager
def writing(place: Path, fix: str) -> Iterator[None]:
    """Tell in one line what the system refuses to write inside.

    Parameters
    ----------
    place : Path
        Named where the system names no file (a full disk).
    fix : str
        What to do, e.g. ``give --output FOLDER``.

    Raises
    ------
    UserError
        In place of an OSError.
    """
    try:
        yield
    except OSError as problem:
        raise UserError(f"{problem.filename or place} cannot be written ({problem.strerror}); {fix}") from None


def claim(folder: Path, names: Iterable[str], fix: str) -> None:
    """Make a folder and try it, before work whose result would be lost.

    Parameters
    ----------
    folder : Path
    names : iterable of str
        Files that will be written there; none may be a folder.
    fix : str
        As in `writing`.
    """
    with writing(folder, fix):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (folder / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(folder / name))
        with tempfile.TemporaryFile(dir=folder):
            pass
