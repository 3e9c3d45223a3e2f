"""Ray's replicas write the same records as this process, also when one of them is killed."""

import os
import signal

import psutil
import pytest

from eval.runner import run
from tests.eval.runs import cells, outcome, plan, save_model

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")

ENGINE = ("engine=ray", "engine.workers=2", "limit=4")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    results = tmp_path_factory.mktemp("local")
    run(plan(model, results, "method=[selkv,snapkv]", "limit=4"))
    return {key: outcome(record) for key, record in cells(results).items()}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def replicas() -> list[psutil.Process]:
    """Processes of the model replicas of this test's cluster."""
    children = psutil.Process().children(recursive=True)
    return [p for p in children if "Replica" in " ".join(p.cmdline())]


def test_two_workers_write_what_one_process_writes(model, tmp_path, expected):
    assert run(plan(model, tmp_path, "method=[selkv,snapkv]", *ENGINE)) == 0
    assert {key: outcome(record) for key, record in cells(tmp_path).items()} == expected


def test_a_killed_worker_loses_nothing(model, tmp_path, expected, monkeypatch):
    import eval.store

    original, killed = eval.store.Store.append, []

    def append(self, dataset, records):
        original(self, dataset, records)
        if not killed:  # once the first sample is written, others are being worked on
            victim = replicas()[0]
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    monkeypatch.setattr(eval.store.Store, "append", append)
    assert run(plan(model, tmp_path, "method=[selkv,snapkv]", *ENGINE)) == 0
    assert killed
    assert {key: outcome(record) for key, record in cells(tmp_path).items()} == expected
