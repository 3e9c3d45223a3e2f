"""The efficiency command on a tiny random model: what it writes, what it skips, what it refuses; roofline by hand."""

import csv
import time
from pathlib import Path

import pytest
import torch

from eval.efficiency import phases
from eval.efficiency.measure import peak, spread, timed
from eval.efficiency.models import Shape, random_model
from eval.efficiency.roofline import Rates, Work, _pairs, decode_work, prefill_work, weights_read
from eval.efficiency_cli import LENGTHS, main, request_of
from selkv.errors import UserError
from selkv.prefill import prefill

TINY = ["layers=2", "heads=4", "kv_heads=2", "head_dim=16", "hidden=32", "intermediate=48", "vocab=64"]
SHAPE = Shape(2, 4, 2, 16, 32, 48, 64)
CPU = torch.device("cpu")


def test_command_writes_csv_table_plot_and_skips_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = ["model=random", *TINY, "lengths=[64,1000000000,128]", "method=[full,selkv]", "ratio=[0.25,0.5]"]
    assert main([*arguments, "repeats=2", "new_tokens=4", f"results={tmp_path}"]) == 0
    folder = tmp_path / "efficiency" / "random"
    assert {p.name for p in folder.iterdir()} == {
        "efficiency.csv", "efficiency.md", "efficiency.png", "efficiency.svg", "machine.json",
    }  # fmt: skip
    *rows, skipped = csv.DictReader((folder / "efficiency.csv").open())
    assert [(row["n"], row["method"], row["ratio"]) for row in rows] == [
        (n, *arm) for n in ("64", "128") for arm in (("full", "1"), ("selkv", "0.25"), ("selkv", "0.5"))
    ]
    assert skipped["n"] == "1000000000" and "GiB" in skipped["skipped"]
    per_token = 2 * 2 * 2 * 16 * 4  # K and V, layers, heads, d, bytes
    assert [int(row["kv_bytes"]) for row in rows[:3]] == [64 * per_token, 16 * per_token, 32 * per_token]
    for row in rows:
        assert 0 < float(row["prefill_low"]) <= float(row["prefill_s"]) <= float(row["prefill_high"])
        assert float(row["ttft"]) == pytest.approx(float(row["prefill_s"]) + float(row["compress_s"]), rel=1e-4)
        assert float(row["total"]) == pytest.approx(float(row["ttft"]) + 3 * float(row["step_s"]), rel=1e-4)
        assert 0 < float(row["decode_roofline"]) < 1 and 0 < float(row["prefill_roofline"]) < 1
        assert row["kernel"] == "flash_attention_for_cpu"
    assert float(rows[0]["speedup"]) == 1
    text = (folder / "efficiency.md").read_text()
    assert "1000000000 tokens: skipped" in text and "torch 2" in text
    assert "selkv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lengths=[0]"], "lengths=0 is not a whole number"),
        (["lengths=many"], "lengths=many is not"),
        (["new_tokens=1"], "new_tokens=1 is not"),
        (["layers=2"], "layers=... is for model=random"),
        (["model=random", "heads=3"], "no multiple of kv_heads=8"),
        (["method=[sekv]"], "selkv"),
        (["lengths=[]"], "lengths=[] is empty"),
        (["lengths="], "lengths=null is not a whole number"),
        (["lengths=["], "cannot read 'lengths=['"),
        (["lengths"], "lengths has no value"),
        (["lengths=64,128"], "or a list like [512,1024]"),
        (["lengths=[64.5]"], "lengths=64.5 is not"),
        (["lengths=[[64]]"], "lengths=[64] is not"),
        (["lengths={a: 1}"], "lengths={'a': 1} is not"),
        (["lengths=[true]"], "lengths=true is not"),
        (["lengths=-5"], "lengths=-5 is not"),
        (["repeats=0"], "repeats=0 is not"),
        (["repeats=many"], "repeats='many' is not"),
        (["model=random", "head_dim=7"], "head_dim=7 is odd"),
        (["model=random", "hidden=33"], "hidden=33 is no multiple of heads=32"),
        (["model=random", "layers=0"], "layers=0 is not"),
        (["model=random", "vocab=1000000000000"], "give smaller sizes"),
        (["model=random", "model.device=gpu"], "unknown model.device 'gpu'; choose from: auto, cpu"),
        (["model=random", "model.device=meta"], "unknown model.device 'meta'"),
        (["--lengths=64"], "unknown flag '--lengths'"),
        (["-m"], "-m is for python run.py"),
        (["lenghts=[64]"], "unknown option 'lenghts'"),
    ],
)
def test_mistakes_take_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert main([*arguments, "lengths=[8]"] if "lengths" not in arguments[0] else arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("place", ["/proc/selkv", "file", "taken"])
def test_a_place_that_cannot_be_written_is_told_before_the_measurement(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.efficiency.models.model_of", lambda *_: pytest.fail("it loaded a model"))
    (tmp_path / "file").write_text("kept")
    (tmp_path / "taken/efficiency/random/efficiency.png").mkdir(parents=True)
    assert main(["model=random", *TINY, "lengths=[8]", f"results={tmp_path / place}"]) == 2
    error = capsys.readouterr().err
    assert "cannot be written (" in error and "give results=FOLDER" in error and error.count("\n") == 1


def test_lengths_that_all_do_not_fit_leave_what_was_measured_before(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "efficiency" / "random"
    folder.mkdir(parents=True)
    (folder / "efficiency.csv").write_text("of yesterday")
    assert main(["model=random", *TINY, "lengths=[1000000000,2000000000]", f"results={tmp_path}"]) == 2
    shown, error = capsys.readouterr()
    assert "error: no length fits" in error and error.count("skipped") == 2 and shown == ""
    assert [path.name for path in folder.iterdir()] == ["efficiency.csv"]
    assert (folder / "efficiency.csv").read_text() == "of yesterday"


def test_a_dry_run_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["model=random", *TINY, "lengths=[8]", "dry_run=true", f"results={tmp_path}"]) == 0
    assert "would measure full at 1, selkv at 0.25" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_ctrl_c_keeps_the_lengths_measured_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(model: object, arms: object, n: int, *rest: object) -> list:
        if n == 64:
            raise KeyboardInterrupt
        return original(model, arms, n, *rest)

    original = phases.measure_length
    monkeypatch.setattr(phases, "measure_length", measured)
    arguments = ["model=random", *TINY, "lengths=[32,64]", "method=full", "repeats=1", "new_tokens=2"]
    assert main([*arguments, f"results={tmp_path}"]) == 130
    assert "interrupted" in capsys.readouterr().err
    rows = list(csv.DictReader((tmp_path / "efficiency" / "random" / "efficiency.csv").open()))
    assert [row["n"] for row in rows] == ["32"]


def test_request_keeps_the_options_of_a_run() -> None:
    request = request_of(["method=[full,h2o]", "repeats=5", "model=llama31"])
    assert request.overrides == ["name=efficiency", "method=[full,h2o]", "model=llama31"]
    assert (request.lengths, request.numbers, request.shape) == (LENGTHS, {"repeats": 5, "new_tokens": 32}, None)
    with pytest.raises(UserError):
        request_of(["hidden=8"])


def test_help(capsys: pytest.CaptureFixture) -> None:
    assert main(["--help"]) == 0
    assert "lengths=" in capsys.readouterr().out


def test_clock_and_spread() -> None:
    seconds, result = timed(lambda: time.sleep(0.02) or 7, CPU)
    assert seconds >= 0.02 and result == 7
    assert spread([3.0, 1.0, 10.0]) == (3.0, 1.0, 10.0)


def test_peak_sees_what_is_gone_again() -> None:
    with peak(CPU) as before:
        pass
    with peak(CPU) as seen:
        torch.ones(2**26)  # 256 MiB, freed at once
    with peak(CPU) as after:
        pass
    if before.bytes is None or seen.bytes is None or after.bytes is None:
        pytest.skip("the system does not tell a process its peak")
    assert seen.bytes - before.bytes > 200 * 2**20
    assert after.bytes < seen.bytes - 200 * 2**20  # reset in front


def test_roofline_by_hand() -> None:
    model = random_model(SHAPE, 64, CPU, torch.float32)
    attention, mlp = 32 * 64 + 2 * 32 * 32 + 64 * 32, 3 * 32 * 48
    count = 2 * (attention + mlp + 2 * 32) + 32 + 64 * 32  # two norms a layer, the last norm, the head; no embedding
    assert weights_read(model) == (4 * count, count)
    kv = 2 * 2 * 2 * 16 * 10 * 4  # ten entries
    work = decode_work(model, kv)
    assert work == Work(4 * count + kv, 2 * count + 2 * (2 * 4 * 2 * 16 * 10))  # q k and p v of each query head
    state = prefill(model, torch.arange(10))
    pairs = 2 * 10 * 11 // 2
    assert prefill_work(model, 10, state.layers).operations == 20 * (count - 2048) + 2 * 2048 + 4 * 4 * 16 * pairs
    assert Work(100, 30).least_seconds(Rates(bandwidth=10, operations=1)) == 30
    assert Work(400, 30).least_seconds(Rates(bandwidth=10, operations=1)) == 40
    assert _pairs(5, 2) == 1 + 2 + 2 + 2 + 2
