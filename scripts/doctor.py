"""Check model, data, prompts and memory first: ``python scripts/doctor.py model=...`` (also ``selkv doctor``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from eval.doctor_cli import main

if __name__ == "__main__":
    sys.exit(main())
