"""Rebuild what is derived from records: ``python scripts/report.py RUN [RUN ...]`` (the same as ``selkv report``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.report.cli import main

if __name__ == "__main__":
    sys.exit(main())
