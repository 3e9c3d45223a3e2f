"""The folder for what is downloaded or converted once and used again."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """``SELKV_CACHE`` where set, else ``~/.cache/selkv``; not created here."""
    return Path(os.environ.get("SELKV_CACHE") or Path.home() / ".cache" / "selkv")
