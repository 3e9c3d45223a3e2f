"""No operator may become much slower than the stored baseline, measured as a ratio to a matmul of the same run."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.benchmarks.operators import BASELINE, cases, fastest, reference

STORED = json.loads(BASELINE.read_text(encoding="utf-8"))
SLOWER = 4  # machines differ by 2 between memory and arithmetic, and may be busy; an accidental n * n is far beyond


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def operators() -> dict[str, Any]:
    return cases()


def test_baseline_names_every_operator(operators: dict[str, Any]) -> None:
    assert sorted(STORED) == sorted(operators)


@pytest.mark.parametrize("name", STORED)
def test_operator_keeps_its_speed(name: str, operators: dict[str, Any], benchmark: Any) -> None:
    unit = fastest(reference())
    benchmark.pedantic(operators[name], rounds=15, warmup_rounds=2)
    ratio = benchmark.stats.stats.min / min(unit, fastest(reference()))
    benchmark.extra_info["ratio"] = ratio
    assert ratio < SLOWER * STORED[name], f"{name}: {ratio:.2f} matmuls, {STORED[name]} in the baseline"
