"""The docstrings of all public names begin with lines of use, which are run here."""

import doctest
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.tasks.classifier.model import ClassifierSettings

NAMES = [name for name in albert_tf.__all__ if name != "__version__"]


@pytest.fixture
def reviews(tiny, small_tokenizer, tmp_path: pathlib.Path, monkeypatch) -> None:
    """A classifier of random weights in runs/reviews, from the working directory."""
    monkeypatch.chdir(tmp_path)
    tf_keras.utils.set_random_seed(1)
    task, rng = ClassifierSettings(("bad", "good"), seq_length=16), np.random.default_rng(0)
    shapes = head_shapes(tiny, task)
    head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    (tmp_path / "runs").mkdir()
    native.write(Bundle(tiny, head, small_tokenizer, task), "runs/reviews")


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_use_give_what_they_show(name, request):
    if name == "load_predictor":
        request.getfixturevalue("reviews")
    text = getattr(albert_tf, name).__doc__
    summary, blank, *rest = text.splitlines()
    assert summary and not blank and rest[0].lstrip().startswith(">>> ")
    names = {"albert_tf": albert_tf, "tf": tf, "np": np}
    lines = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    found: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(lines, out=found.append)
    assert results.attempted >= 2 and not results.failed, "".join(found)
