"""Put runs beside published numbers: ``python scripts/compare.py RUN`` (the same as ``selkv compare RUN``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.compare_cli import main

if __name__ == "__main__":
    sys.exit(main())
