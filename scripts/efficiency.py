"""Measure time and memory against prompt length: ``python scripts/efficiency.py ...`` (also ``selkv efficiency``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.efficiency_cli import main

if __name__ == "__main__":
    sys.exit(main())
