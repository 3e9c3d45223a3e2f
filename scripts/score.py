"""Score a folder of LongBench predictions: ``python scripts/score.py DIR`` (the same as ``selkv score DIR``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.score_cli import main

if __name__ == "__main__":
    sys.exit(main())
