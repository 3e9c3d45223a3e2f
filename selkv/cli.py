"""The ``selkv`` command: every subcommand is a module of `eval`, imported only when it is asked for."""

import importlib
import sys
from collections.abc import Sequence

from selkv import __version__
from selkv.errors import UserError, unknown

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status; without one, or with ``--help``, list them."""
    name, *arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print("Usage: selkv COMMAND ...     (selkv COMMAND --help tells more)\n")
        print("\n".join(f"  {command:12}{text}" for command, (_, text) in COMMANDS.items()))
        return 0
    if name == "--version":
        print(f"selkv {__version__}")
        return 0
    try:
        if name not in COMMANDS:
            raise unknown("command", name, COMMANDS)
        return importlib.import_module(COMMANDS[name][0]).main(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
