"""The cost table runs over every method."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_row_for_each_method() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench_compress.py"), "--n", "64", "--rounds", "1"]
    done = subprocess.run([*command, "streamingllm", "h2o", "evolkv"], capture_output=True, text=True, check=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["evolkv", "h2o", "snapkv", "streamingllm"]
    assert [row[3] for row in rows] == ["last 32", "all", "last 32", "none"]
    assert rows[2][2] == "1.00"
