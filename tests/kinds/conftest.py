"""A case, its run of random weights and its exports, each made once in a process of tests."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.tasks.kinds import EXPORTS, KINDS
from albert_tf.tasks.predictor import Predictor, load_predictor
from finetuning.datasets import DATASETS, TRAINED
from finetuning.kinds.registry import FINETUNING
from tests.albert_tf.conftest import tiny  # noqa: F401
from tests.finetuning.conftest import start  # noqa: F401
from tests.kinds.cases import CASES, FAST, Case
from tests.kinds.toy_kind import FinetuningOrdinal, Stars

PARAMS = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in CASES]


@pytest.fixture
def toy(monkeypatch) -> None:
    """Lists the toy in the two registries, which is all that a new kind changes, and its data."""
    added = FinetuningOrdinal()
    for registry, value in ((KINDS, added.kind), (EXPORTS, added.kind), (FINETUNING, added)):
        monkeypatch.setitem(registry, added.kind.name, value)
    for datasets in (DATASETS, TRAINED):
        monkeypatch.setitem(datasets, "stars", Stars())


@pytest.fixture(params=PARAMS)
def name(request, toy) -> str:
    """The name of a case."""
    return request.param


@pytest.fixture
def case(name: str) -> Case:
    return CASES[name]


@pytest.fixture(scope="session")
def run_of(tiny, small_tokenizer, tmp_path_factory) -> Callable[[str], str]:  # noqa: F811
    """(name of a case) -> the folder of a run of random weights."""

    @functools.cache
    def write(name: str) -> str:
        tf_keras.utils.set_random_seed(7)
        case, folder = CASES[name], str(tmp_path_factory.mktemp("run"))
        config, rng = tiny.replace(num_layers=2), np.random.default_rng(0)
        shapes = head_shapes(config, case.settings)
        head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
        native.write(Bundle(config, head, small_tokenizer, case.settings), folder)
        return folder

    return write


@pytest.fixture(scope="session")
def predictor_of(run_of) -> Callable[[str], Predictor]:
    return functools.cache(lambda name: load_predictor(run_of(name)))


@pytest.fixture(scope="session")
def export_of(run_of, tmp_path_factory) -> Callable[..., str]:
    """(name of a case, format) -> the folder of the export."""

    @functools.cache
    def write(name: str, format: str = "saved_model") -> str:
        output = str(tmp_path_factory.mktemp("exports") / "model")
        export(ExportOptions(run_of(name), output, format=format))
        return f"{output}/1"

    return write


@pytest.fixture(scope="session")
def saved_model_of(export_of) -> Callable[[str], Any]:
    """(name of a case) -> its SavedModel."""
    return functools.cache(lambda name: tf.saved_model.load(export_of(name)))


@pytest.fixture
def saved_model(name: str, saved_model_of) -> Any:
    return saved_model_of(name)


@pytest.fixture
def path(name: str, run_of) -> str:
    return run_of(name)


@pytest.fixture
def predictor(name: str, predictor_of) -> Predictor:
    return predictor_of(name)
