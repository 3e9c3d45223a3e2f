"""Values against declared types, in words."""

import math
from typing import Any

from eval.typecheck import misfit


def test_types_in_words():
    assert misfit([1, 2.5], list[float], "x") == "" == misfit(None, str | None, "x") == misfit({"a": []}, Any, "x")
    assert misfit(math.nan, float, "x") == ""
    assert misfit(True, int, "x") == "x must be a whole number, not True"
    assert misfit([1, True], list[int], "x") == "x[1] must be a whole number, not True"
    assert (
        misfit({"a": {"b": [1, "y"]}}, dict[str, dict[str, list[float]]], "x") == "x.a.b[1] must be a number, not 'y'"
    )
    assert misfit("z" * 99, int, "x") == f"x must be a whole number, not '{'z' * 36}..."
