"""Records that cost little to read, for tests of the loop around a step that costs nothing."""

import pathlib
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def masked_records(tiny_tokenizer: str, made_once: Callable) -> str:
    """A folder of records that are masked already: to mask them on the way is half of a run."""
    from data.build import BuildOptions, build

    def write(folder: pathlib.Path) -> None:
        given = {"seq_length": 32, "num_workers": 1, "layout": "reference"}
        build(BuildOptions("python_docs:email,json", tiny_tokenizer, str(folder), **given))

    return str(made_once("masked_records", write))
