"""lm-eval's own command line with one model more: ``--model selkv``.

lm-eval 0.4.13 finds no models of other packages by itself, so this registers ours and then calls lm-eval's main:

    python -m selkv.lm_eval --model selkv --model_args pretrained=PATH,method=selkv,ratio=0.25 --tasks TASK
"""

import importlib
import sys
from importlib.util import find_spec

from selkv.errors import UserError


def main() -> int:
    """Register the model, run lm-eval; 2 for a mistake of the user's, told in one line."""
    try:
        if find_spec("lm_eval") is None:
            raise UserError("selkv.lm_eval needs the package lm_eval; run: pip install 'selkv[lm-eval]'")
        from lm_eval.__main__ import cli_evaluate

        importlib.import_module("selkv.lm_eval.model")  # registers the model
        cli_evaluate()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
