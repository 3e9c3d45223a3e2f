"""Fixtures that several test folders share."""

from pathlib import Path

import pytest

from eval.config import RunPlan
from tests.stub_runner import install_runner, recorder


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data beside the checkout: LongBench's texts and goldens, which the repository must not hold."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(f"reference data not found at {path}")
    return path


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[RunPlan]:
    """Plans handed over to a runner that does nothing; the working directory is empty."""
    handed: list[RunPlan] = []
    install_runner(monkeypatch, recorder(handed))
    monkeypatch.chdir(tmp_path)
    return handed
