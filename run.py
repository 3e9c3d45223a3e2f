"""Entry point: ``python run.py key=value ...``; ``python run.py --help`` shows what can be set."""

import importlib.util
import sys

if absent := [name for name in ("yaml", "hydra", "torch") if importlib.util.find_spec(name) is None]:
    fix = "run make setup once, then: source .venv/bin/activate"
    print(f"error: {sys.executable} has no {' and no '.join(absent)}; {fix}", file=sys.stderr)
    sys.exit(2)

from eval.app import main

if __name__ == "__main__":
    sys.exit(main())
