"""Fixtures that several test folders share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Reference data beside the checkout: LongBench's texts and goldens, which the repository must not hold."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(f"reference data not found at {path}")
    return path
