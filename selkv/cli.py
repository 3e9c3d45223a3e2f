"""The ``selkv`` command: every subcommand is a module of `eval`, imported only when it is asked for."""

import importlib
import sys

from selkv import __version__
from selkv.errors import command, unknown

COMMANDS = {
    "run": ("eval.app", "compress, generate, score: the same as python run.py"),
    "score": ("eval.score_cli", "score a folder of LongBench predictions, anyone's"),
    "report": ("eval.report.cli", "rebuild tables, plots and report.html from records"),
    "export": ("eval.export_cli", "write a run in LongBench's own layout"),
    "compare": ("eval.compare_cli", "put a run beside published numbers"),
    "search": ("eval.evolkv_cli", "search layer budgets for method=evolkv"),
    "doctor": ("eval.doctor_cli", "check model, data, prompts and memory before a run"),
    "efficiency": ("eval.efficiency_cli", "measure time and memory against prompt length"),
}


@command
def main(arguments: list[str]) -> int:
    """Run a subcommand and return its exit status; without one, or with ``--help``, list them."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print("Usage: selkv COMMAND ...     (selkv COMMAND --help tells more)\n")
        print("\n".join(f"  {each:12}{text}" for each, (_, text) in COMMANDS.items()))
        return 0
    if name == "--version":
        print(f"selkv {__version__}")
        return 0
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    return importlib.import_module(COMMANDS[name][0]).main(rest)


if __name__ == "__main__":
    sys.exit(main())
