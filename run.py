"""Entry point: ``python run.py key=value ...``; ``python run.py --help`` shows what can be set."""

import sys

from eval.app import main

if __name__ == "__main__":
    sys.exit(main())
