"""The runner on a tiny model: one prefill a sample, resume, faults, keys; the full path from command line to table."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import eval.worker
from eval.choices import choices
from eval.runner import run
from eval.view import load
from selkv.errors import UserError
from selkv.selkv import SelKV
from tests.eval.killed import OPTIONS
from tests.eval.runs import cells, outcome, overrides, plan, save_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def prefills(monkeypatch):
    """Number of prompts that went through the model."""
    counted = []
    original = eval.worker.prefill
    monkeypatch.setattr(eval.worker, "prefill", lambda *a, **k: counted.append(1) or original(*a, **k))
    return counted


def test_a_run_writes_records_tables_and_can_be_repeated(model, tmp_path, prefills, capsys):
    arguments = (model, tmp_path, "method=[selkv,snapkv,streamingllm]", "ratio=[0.25,0.5]")
    assert run(plan(*arguments)) == 0
    records = cells(tmp_path)
    assert (
        len(records) == 2 * 2 * 7 and len(prefills) == 4
    )  # full once, three methods at two ratios; one prefill a sample
    folder = tmp_path / "default" / "tiny"
    files = {"manifest.json", "config.yaml", "scores.csv", "table.md", "table.csv", "table.tex"}
    assert files <= {path.name for path in folder.iterdir()}
    bytes_of = {name: (folder / name).read_bytes() for name in files}
    for record in records.values():
        assert record.error is None and record.fidelity is not None
        assert sum(record.kept) == 4 * 2 * (
            record.n if record.method == "full" else int(float(record.ratio) * record.n)
        )
    assert run(plan(*arguments)) == 0
    assert len(prefills) == 4 and cells(tmp_path) == records
    assert {name: (folder / name).read_bytes() for name in files} == bytes_of
    assert run(plan(*arguments, "limit=3")) == 0  # only the new samples are computed
    assert len(prefills) == 6


def test_methods_together_equal_methods_alone(model, tmp_path):
    names = ["selkv", "snapkv", "h2o", "pyramidkv"]
    run(plan(model, tmp_path / "together", f"method=[{','.join(names)}]"))
    for name in names:
        run(plan(model, tmp_path / "alone", f"method={name}", "deterministic=true"))
    together, alone = cells(tmp_path / "together"), cells(tmp_path / "alone")
    assert together.keys() == alone.keys()
    for key, record in together.items():
        assert record.prediction == alone[key].prediction, f"{record.label} {record.dataset} {record.index}"


def test_ratio_1_of_every_method_is_the_full_cache(model, tmp_path):
    names = [name for name in choices("method") if not name.startswith(("evolkv", "kvpress"))]
    run(plan(model, tmp_path, f"method=[{','.join(names)}]", "ratio=1"))
    records = list(cells(tmp_path).values())
    full = {(r.dataset, r.index): r for r in records if r.method == "full"}
    for record in records:
        reference = full[record.dataset, record.index]
        assert record.error is None, f"{record.label}: {record.error}"
        assert record.prediction == reference.prediction, record.label
        assert record.fidelity["kl"] < 1e-6 and record.fidelity["agreement"] == 1, record.label


def test_keys_know_what_changes_a_prediction(model, tmp_path):
    def keys(*more):
        run(plan(model, tmp_path, "method=selkv", *more))
        manifest = json.loads((tmp_path / "default" / "tiny" / "manifest.json").read_text())
        return {key for rows in manifest["cells"].values() for row in rows for key in row}

    base = keys()
    full = {key for key, record in cells(tmp_path).items() if record.method == "full"}
    assert keys("scoring=strict", "baseline=selkv") == base
    assert keys("methods.selkv.alpha=0.25") & base == full
    assert keys("ratio=0.3") & base == full
    assert not keys("seed=1") & base
    assert not keys("model.max_prompt_tokens=1999") & base
    assert not keys("compress=context") & base


def test_a_failing_method_is_recorded_and_the_others_go_on(model, tmp_path, monkeypatch, capsys):
    original = SelKV.compress

    def fails(self, layer, budget):
        if self.alpha == 0.75 and layer.layer == 2:
            raise RuntimeError("broken on purpose")
        return original(self, layer, budget)

    monkeypatch.setattr(SelKV, "compress", fails)
    arguments = (model, tmp_path, "method=[full,selkv]", "grid.selkv.alpha=[0.5,0.75]")
    assert run(plan(*arguments)) == 1
    states = {r.label: r.error for r in cells(tmp_path).values()}
    assert states["selkv alpha=0.5"] is None and "broken on purpose" in states["selkv alpha=0.75"]
    assert "4 cells failed and left out" in " ".join(capsys.readouterr().out.split())
    table = (tmp_path / "default" / "tiny" / "table.csv").read_text()
    failed_row = next(line for line in table.splitlines() if "alpha=0.75" in line)
    assert "0.00" not in failed_row  # a hole, never a 0

    monkeypatch.setattr(SelKV, "compress", original)  # repaired: the same command fills the holes
    assert run(plan(*arguments)) == 0
    view = load(tmp_path / "default" / "tiny")
    assert all(record.error is None for record in view.records.values()) and len(view.records) == 12


def test_out_of_memory_splits_the_batch(model, tmp_path, monkeypatch):
    arguments = ("method=[selkv,snapkv,streamingllm]", "ratio=[0.25,0.5]")
    run(plan(model, tmp_path / "free", *arguments))
    original = eval.worker.greedy

    def small(model, cache, *rest):
        if len(cache.lengths) > 2:
            raise torch.OutOfMemoryError("no room on purpose")
        return original(model, cache, *rest)

    monkeypatch.setattr(eval.worker, "greedy", small)
    assert run(plan(model, tmp_path / "tight", *arguments)) == 0
    free, tight = cells(tmp_path / "free"), cells(tmp_path / "tight")
    assert {k: r.prediction for k, r in free.items()} == {k: r.prediction for k, r in tight.items()}
    assert max(r.batch_rows for r in tight.values()) <= 2 < max(r.batch_rows for r in free.values())


def test_torn_and_foreign_lines(model, tmp_path, prefills):
    arguments = (model, tmp_path, "method=selkv")
    run(plan(*arguments))
    before = {key: outcome(record) for key, record in cells(tmp_path).items()}
    path = tmp_path / "cells" / "tiny" / "mini" / "hotpotqa.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-25])  # killed while writing
    run(plan(*arguments))
    assert {key: outcome(record) for key, record in cells(tmp_path).items()} == before
    assert len(prefills) == 5
    path.write_bytes(b"not a record\n" + whole)
    with pytest.raises(UserError, match=r"hotpotqa\.jsonl:1 is not a record"):
        run(plan(*arguments))
    assert path.read_bytes().endswith(whole)


def test_two_runs_do_not_write_the_same_cells(model, tmp_path):
    from eval.store import Store

    with Store(tmp_path, "tiny", "mini"), pytest.raises(UserError, match="another run is writing"):
        run(plan(model, tmp_path, "method=selkv"))


def test_unwritable_folder_is_one_line(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        run(plan(model, tmp_path / "file", "method=selkv"))


@pytest.mark.parametrize("place", ["default", "default/tiny", "default/tiny/manifest.json/"])
def test_a_folder_that_cannot_hold_the_run_is_one_line(model, tmp_path, place):
    if place.endswith("/"):
        (tmp_path / place).mkdir(parents=True)
    else:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        run(plan(model, tmp_path, "method=selkv"))


def test_plots_of_an_earlier_run_with_other_methods_go(model, tmp_path):
    wide = ["method=[selkv,snapkv]", "ratio=[0.2,0.6]", "report=true", "data.tasks=[hotpotqa]", "limit=1"]
    run(plan(model, tmp_path, *wide))
    plots = tmp_path / "default" / "tiny" / "plots"
    assert (plots / "score_by_ratio.png").exists()
    run(plan(model, tmp_path, *wide[2:], "method=selkv", "ratio=0.2"))
    assert not (plots / "score_by_ratio.png").exists() and list(plots.glob("*.png"))


def test_an_arm_that_breaks_the_prefill_takes_no_other_along(model, tmp_path, monkeypatch, capsys):
    original = eval.worker.prefill

    def fails(model, ids, needs, **options):
        if needs.window == 64:
            raise ValueError("window broken on purpose")
        return original(model, ids, needs, **options)

    monkeypatch.setattr(eval.worker, "prefill", fails)
    chosen = ["method=[selkv,snapkv,h2o]", "methods.snapkv.window=64"]
    assert run(plan(model, tmp_path, *chosen)) == 1
    failed = {record.label: record.error for record in cells(tmp_path).values() if record.error}
    assert failed.keys() == {"snapkv"} and "window broken on purpose" in failed["snapkv"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "Failed with ValueError: window broken on purpose: snapkv" in printed
    assert "Worth adding to" not in printed
    monkeypatch.setattr(eval.worker, "prefill", original)
    assert run(plan(model, tmp_path, *chosen)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Worth adding to" in printed and "snapkv: with window=64 instead of 32." in printed


def test_a_failing_sample_is_recorded(model, tmp_path, monkeypatch):
    original = eval.worker.encode

    def fails(sample, *rest):
        if sample.index == 1:
            raise ValueError("sample broken on purpose")
        return original(sample, *rest)

    monkeypatch.setattr(eval.worker, "encode", fails)
    assert run(plan(model, tmp_path, "method=selkv")) == 1
    records = cells(tmp_path).values()
    assert {r.index for r in records if r.error} == {1} and {r.index for r in records if not r.error} == {0}


def test_dry_run_computes_nothing(model, tmp_path, prefills, capsys):
    assert run(plan(model, tmp_path, "dry_run=true", "ratio=[0.25,0.5]")) == 0
    assert not prefills and not list(tmp_path.glob("default"))
    assert "28" in capsys.readouterr().out  # cells: 4 samples, full and 3 methods at 2 ratios
    run(plan(model, tmp_path, "ratio=[0.25,0.5]"))
    capsys.readouterr()
    run(plan(model, tmp_path, "dry_run=true", "ratio=[0.25,0.5]"))
    assert "0 cells to compute" in capsys.readouterr().out


def test_interrupt_keeps_what_is_done(model, tmp_path, monkeypatch, capsys):
    original, calls = eval.worker.Worker.run, []

    def interrupted(self, unit, advance):
        calls.append(unit)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, unit, advance)

    monkeypatch.setattr(eval.worker.Worker, "run", interrupted)
    assert run(plan(model, tmp_path, "method=selkv")) == 130
    assert "Run the same command again" in capsys.readouterr().err
    assert len(cells(tmp_path)) == 4
    monkeypatch.setattr(eval.worker.Worker, "run", original)
    assert run(plan(model, tmp_path, "method=selkv")) == 0
    assert len(cells(tmp_path)) == 8


@pytest.mark.parametrize(
    "mode", [["prefill=two_pass"], ["prefill.chunk=50"], ["compress=context"], ["sliding_layers=keep"]]
)
def test_options_of_the_engine_run(model, tmp_path, mode):
    assert run(plan(model, tmp_path, "method=selkv", *mode)) == 0
    assert all(record.error is None for record in cells(tmp_path).values())


def test_records_carry_every_field(model, tmp_path):
    run(plan(model, tmp_path, "method=selkv"))
    record = next(r for r in cells(tmp_path).values() if r.method == "selkv")
    assert record.counters["routed"] and len(record.counters["routed"]) == 4
    assert record.kv_bytes == sum(record.kept) * (2 * 8 * 4 + 4)
    assert record.params == {field.name: getattr(SelKV(), field.name) for field in dataclasses.fields(SelKV)}
    assert record.seconds > 0 and record.total == [2 * record.n] * 4


def test_command_line_errors_reach_the_user_as_one_line(model, tmp_path, capsys):
    from eval.app import main

    assert main(overrides(model, tmp_path, "method=selkv", "methods.selkv.alpha=-1")) == 2
    assert "alpha=-1" in capsys.readouterr().err


def test_kill_9_at_random_moments_loses_nothing(model, tmp_path):
    run(plan(model, tmp_path / "whole", *OPTIONS))
    expected = {key: outcome(record) for key, record in cells(tmp_path / "whole").items()}
    tables = {path.name: path.read_bytes() for path in (tmp_path / "whole" / "default" / "tiny").glob("table.*")}
    command = [sys.executable, "-m", "tests.eval.killed", str(model), str(tmp_path / "killed"), "30"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # forked children cannot share a thread pool
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "30"
    for results in (tmp_path / "killed").iterdir():
        assert {key: outcome(record) for key, record in cells(results).items()} == expected
        folder = results / "default" / "tiny"
        assert {path.name: path.read_bytes() for path in folder.glob("table.*")} == tables


def test_the_end_names_the_files_that_were_written(model, tmp_path, capsys):
    assert run(plan(model, tmp_path, "method=[full]", "data.tasks=[hotpotqa]", "limit=1")) == 0
    (line,) = [line for line in capsys.readouterr().out.split("\n\n") if "Results are in" in line]
    named = "".join(line.split("Worth")[0].split()).partition("(")[2].rstrip(".").rstrip(")").split(",")
    assert all((tmp_path / "default/tiny" / name).exists() for name in named), named
    assert "report.html" not in named
