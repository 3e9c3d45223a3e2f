"""Small runs of the other benchmarks: the tiny model of `tests.eval.runs` through the one runner."""

from pathlib import Path

from eval.runner import run
from eval.view import View, load
from tests.eval.runs import SMALL, overrides, plan_of


def finished(model: Path, results: Path, *options: str) -> View:
    """Run full and two methods; everything must be scored."""
    fixed = [text for text in overrides(model, results) if text not in SMALL]
    plan = plan_of([*fixed, "method=[full,snapkv,streamingllm]", "ratio=0.5", "fidelity=true", *options])
    assert run(plan) == 0
    view = load(results / "default" / "tiny")
    assert view.records and not [record for record in view.records.values() if record.error]
    return view
