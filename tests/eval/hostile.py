"""A simulated run with a prediction that would break a careless page; shared by the report's tests."""

import dataclasses
from pathlib import Path

from eval.view import View
from tests.eval.simulate import simulate

HOSTILE = "<script>window.broken = 1</script></script><img src=x onerror='window.broken = 1'> &amp; {{data}}"
ARMS = [
    ("full", "1", 0.0),
    *((label, ratio, effect) for ratio in ("0.1", "0.25") for label, effect in (("snapkv", -0.3), ("selkv", -0.05))),
]
TASKS = ["qasper", "hotpotqa", "trec", "passage_retrieval_en"]
SAMPLES = 20


def hostile_run(folder: Path) -> View:
    """80 samples, 5 arms, a failed and a missing cell; the first sample is hostile."""
    failed, missing = [("snapkv", "qasper", 1)], [("selkv", "trec", 2)]
    view = simulate(folder / "table1" / "smollm2", TASKS, SAMPLES, ARMS, failed=failed, missing=missing)
    keys = view.manifest["cells"]["qasper"][0]
    hostile = {key: dataclasses.replace(view.records[key], question=HOSTILE, answers=[HOSTILE]) for key in keys}
    hostile[keys[1]] = dataclasses.replace(hostile[keys[1]], prediction=HOSTILE)
    return View(view.folder, view.manifest, {**view.records, **hostile})
