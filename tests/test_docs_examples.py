"""The method and the benchmark of docs/extending.md, added to a fresh checkout, work at the first try."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eval import runs
from tests.test_docs import ADDED_DATA, COMMANDS, ROOT, added_files


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.save_model(tmp_path_factory.mktemp("model"))


def checkout(folder: Path, name: str, files: list[str]) -> Path:
    """A fresh checkout with those files of docs/extending.md whose path has the name."""
    for part in ("selkv", "baselines", "eval", "configs", "scripts", "tests", "pyproject.toml", "run.py"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
    added = {path: text for path, text in added_files().items() if name in path}
    assert sorted(added) == files
    for path, text in added.items():
        assert not (folder / path).exists()
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


def small(model: Path, folder: Path, *changes: str) -> list[str]:
    """Options of a small run, with some changed."""
    keys = tuple(f"{change.partition('=')[0]}=" for change in changes)
    return [*(word for word in runs.overrides(model, folder / "results") if not word.startswith(keys)), *changes]


def test_new_method_works_at_the_first_try(model: Path, tmp_path: Path) -> None:
    """The example of docs/extending.md in a fresh checkout, and in the tests that it names."""
    checkout(tmp_path, "valuenorm", ["baselines/valuenorm.py", "configs/method/valuenorm.yaml"])
    told = next(words for words in COMMANDS.values() if "method=[full,snapkv,valuenorm]" in words)
    done = python([*told[1:], *small(model, tmp_path, "data.tasks=[hotpotqa]", "limit=1")], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(re.findall(r"│?\s*valuenorm ", done.stdout)) >= 2, done.stdout
    records = runs.cells(tmp_path / "results").values()
    assert sorted(r.ratio for r in records if r.method == "valuenorm" and not r.error) == ["0.1", "0.25"]
    told = next(words for words in COMMANDS.values() if words[:3] == ["python", "-m", "pytest"])
    done = python([*told[1:], "-p", "no:cacheprovider"], tmp_path)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]


def test_new_benchmark_works_at_the_first_try(model: Path, tmp_path: Path) -> None:
    """The other example of docs/extending.md in a fresh checkout: a run with its table, and the page of help."""
    files = ["configs/data/lookup.yaml", "eval/lookup/__init__.py", "eval/lookup/tasks.py"]
    checkout(tmp_path, "lookup", files)
    told = next(words for words in COMMANDS.values() if ADDED_DATA in words)
    mine = [word for word in small(model, tmp_path, "report=true") if not word.startswith("data")]
    done = python([*told[1:], *mine], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    records = runs.cells(tmp_path / "results").values()
    assert len(records) == 3 * 2 and {record.dataset for record in records} == {"lookup"}
    assert not [record.error for record in records if record.error]
    assert (tmp_path / "results/default/tiny/report.html").exists()
    done = python(["run.py", "--help"], tmp_path)
    assert "lookup        Lookup: one number" in done.stdout


def python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
