"""Runs a plan in one folder after the other, killed with SIGKILL at random moments, until enough kills have fallen.

``python -m tests.eval.killed MODEL RESULTS KILLS``. Forks after the imports: a life costs a fraction of a second
and the kills fall into the work, not into start-up. Prints the number of kills.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from eval.runner import run
from tests.eval.runs import plan

OPTIONS = ("method=[selkv,snapkv]", "fidelity=false", "limit=3")


def main(model: str, results: str, kills: str) -> int:
    """Fill folder after folder; returns the exit status of the first run that fails by itself, else 0."""
    draw, killed, folder = random.Random(0), 0, 0
    while killed < int(kills):
        child = os.fork()
        if child == 0:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            os._exit(run(plan(Path(model), Path(results) / str(folder), *OPTIONS)))
        time.sleep(draw.uniform(0.05, 1.0))
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status):
            return os.WEXITSTATUS(status)
        else:
            folder += 1
    code = run(plan(Path(model), Path(results) / str(folder), *OPTIONS))
    print(killed)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
