"""lm-eval's own command line with one model more: ``--model selkv``.

lm-eval 0.4.13 finds no models of other packages by itself, so this registers ours and then calls lm-eval's main:

    python -m selkv.lm_eval --model selkv --model_args pretrained=PATH,method=selkv,ratio=0.25 --tasks TASK
"""

import importlib
import sys

from selkv.errors import UserError


def main() -> int:
    """Register the model, run lm-eval; 2 for a mistake of the user's, told in one line."""
    try:
        try:
            from lm_eval.__main__ import cli_evaluate

            importlib.import_module("selkv.lm_eval.model")  # registers the model
            cli_evaluate()
        except ModuleNotFoundError as problem:  # lm_eval itself, or one of its dependencies, which it imports late
            hint = "run: pip install lm_eval"
            raise UserError(f"selkv.lm_eval needs the package lm_eval, complete ({problem}); {hint}") from problem
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
