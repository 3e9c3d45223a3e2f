"""The wheel in a fresh virtual environment outside the checkout: commands, a run, results in the current folder."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from eval.view import load
from selkv import __version__, cli
from tests.eval import runs

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a new virtual environment that holds the wheel; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # a path in a .pth file brings packages, but not the editable install of the checkout, which is a .pth file itself
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--ignore-installed", str(wheel)], check=True)
    return folder / "bin/selkv"


def call(program: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([program, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_content(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"selkv", "baselines", "eval", f"selkv-{__version__}.dist-info"}
    shipped = {name.removeprefix("selkv/configs/") for name in names if name.startswith("selkv/configs/")}
    assert shipped == {str(path.relative_to(ROOT / "configs")) for path in (ROOT / "configs").rglob("*.yaml")}
    assert {f"{package}/py.typed" for package in ("selkv", "baselines", "eval")} <= set(names)
    assert any(name.startswith("selkv/reference/") for name in names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".pyc", ".jsonl")) or "/tests/" in name]


def test_help_lists_the_tools(program: Path, tmp_path: Path) -> None:
    done = call(program, tmp_path, "--help")
    assert done.returncode == 0 and all(f"  {name} " in done.stdout for name in cli.COMMANDS), done.stderr
    assert call(program, tmp_path, "--version").stdout == f"selkv {__version__}\n"
    assert "table1" in call(program, tmp_path, "run", "--help").stdout


def test_mistake_is_one_line(program: Path, tmp_path: Path) -> None:
    done = call(program, tmp_path, "run", "ratio=2")
    assert done.returncode == 2 and done.stderr.startswith("error: ratio=2") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_run_writes_to_the_current_folder(program: Path, tmp_path: Path) -> None:
    model = runs.save_model(tmp_path / "model")
    here = tmp_path / "work"
    here.mkdir()
    options = [word for word in runs.overrides(model, here) if not word.startswith(("results=", "report="))]
    done = call(program, here, "run", *options, "data.tasks=[hotpotqa]", "limit=1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [path.name for path in here.iterdir()] == ["results"]
    view = load(here / "results/default/tiny")
    assert view.records and all(record.error is None for record in view.records.values())
    assert (view.folder / "report.html").stat().st_size > 10_000
    again = call(program, here, "report", "results/default/tiny")
    assert again.returncode == 0, again.stderr[-3000:]
