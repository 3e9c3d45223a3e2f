"""Search EvolKV's layer budgets: ``python scripts/evolkv_search.py`` (the same as ``selkv search``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.evolkv_cli import main

if __name__ == "__main__":
    sys.exit(main())
