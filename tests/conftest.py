"""Fixtures that several test rooms share."""

import os
import pathlib

import pytest


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data; the test is skipped where there is none."""
    beside_the_checkout = pathlib.Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = pathlib.Path(os.environ.get("ALBERT_TEST_DATA") or beside_the_checkout).resolve()
    if not folder.is_dir():
        pytest.skip(f"shared data is absent: no folder {folder} (set ALBERT_TEST_DATA)")
    return folder
