"""Write a run in LongBench's own layout: ``python scripts/export.py RUN`` (the same as ``selkv export RUN``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.export_cli import main

if __name__ == "__main__":
    sys.exit(main())
