"""The benchmark scripts: a row for each method, help without what only the measurement needs, mistakes in one line."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts import bench_compress, bench_decode, bench_grid

ROOT = Path(__file__).resolve().parents[2]
MAINS = {"compress": bench_compress.main, "decode": bench_decode.main, "grid": bench_grid.main}


def test_a_row_for_each_method() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench_compress.py"), "--n", "64", "--rounds", "1"]
    done = subprocess.run([*command, "streamingllm", "h2o", "evolkv"], capture_output=True, text=True, check=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["evolkv", "h2o", "snapkv", "streamingllm"]
    assert [row[3] for row in rows] == ["last 32", "all", "last 32", "none"]
    assert rows[2][2] == "1.00"


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("compress", ["nope"], "unknown method 'nope'; choose from: cam"),
        ("compress", ["full"], "unknown method 'full'"),
        ("compress", ["kvpress"], "unknown method 'kvpress'"),
        ("compress", ["--kv-heads", "3"], "--heads 32 is no multiple of --kv-heads 3"),
        ("compress", ["--kv-heads", "0"], "--kv-heads: 0 is not a whole number of at least 1"),
        ("compress", ["--ratio", "5"], "ratio=5 is not a number in (0, 1]"),
        ("compress", ["--ratio", "-1"], "ratio=-1 is not a number in (0, 1]"),
        ("compress", ["--d", "7"], "--d 7 is odd"),
        ("compress", ["--n", "many"], "--n: many is not a whole number"),
        ("compress", ["--n", "100000000000"], "free; give smaller sizes"),
        ("compress", ["--rounds", "0"], "--rounds: 0 is not a whole number"),
        ("compress", ["--m", "5"], "unrecognized arguments: --m"),
        ("decode", ["--device", "gpu"], "unknown --device 'gpu'; choose from: auto, cpu"),
        ("decode", ["--ratio", "half"], "ratio=half is not a number"),
        ("decode", ["--steps", "1"], "--steps: 1 is not a whole number of at least 2"),
        ("decode", ["--n", "5"], "--n: 5 is not a whole number of at least 32"),
        ("decode", ["--n", "10000000000"], "free; give smaller sizes"),
        ("grid", ["--cells", "0"], "--cells: 0 is not a whole number"),
        ("grid", ["--memory", "-4"], "--memory: -4 is not a whole number"),
        ("grid", ["--tokens", "2.5"], "--tokens: 2.5 is not a whole number"),
        ("grid", ["method=[nope]"], "unknown method 'nope'"),
        ("grid", ["lengths=[5]"], "unknown option 'lengths'"),
    ],
)
def test_mistakes_take_one_line(name, arguments, says, capsys) -> None:
    try:
        status = MAINS[name](arguments)
    except SystemExit as exit:  # argparse's own
        status = exit.code
    error = capsys.readouterr().err
    assert status == 2 and error.startswith("error: ") and error.count("\n") == 1 and says in error, error


@pytest.mark.skipif(find_spec("kvpress") is not None, reason="kvpress is installed, so the script would measure")
def test_help_of_the_comparison_needs_no_kvpress_and_the_comparison_says_that_it_does() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench_peer.py")]
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert helped.returncode == 0 and "--new-tokens" in helped.stdout
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert (
        refused.stderr
        == "error: kvpress is not installed here; make test-peers makes .venv-peers, whose Python has it\n"
    )
