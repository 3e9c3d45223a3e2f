"""A runner that does nothing but take plans, in place of eval.runner."""

import sys
import types
from collections.abc import Callable

import pytest

from eval.config import RunPlan


def recorder(plans: list[RunPlan], code: Callable[[RunPlan], int] = lambda plan: 0) -> Callable[[RunPlan], int]:
    def run(plan: RunPlan) -> int:
        plans.append(plan)
        return code(plan)

    return run


def install_runner(monkeypatch: pytest.MonkeyPatch, run: Callable[[RunPlan], int]) -> None:
    runner = types.ModuleType("eval.runner")
    runner.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "eval.runner", runner)
    monkeypatch.setattr(sys, "argv", ["run.py"])
