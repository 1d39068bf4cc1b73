"""The docstrings of all public names begin with lines of use, which are run here."""

import ast
import doctest
import inspect
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.ranking.model import RankingSettings

NAMES = [name for name in albert_tf.__all__ if name != "__version__"]


def test_type_checkers_see_the_same_names():
    tree = ast.parse(inspect.getsource(albert_tf))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    found = {
        name.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.name == name.asname
    }
    assert found == {name: getattr(albert_tf, name).__module__ for name in NAMES}
    assert (pathlib.Path(albert_tf.__file__).parent / "py.typed").is_file()


RUNS = {
    "load_predictor": ("runs/reviews", ClassifierSettings(("bad", "good"), seq_length=16)),
    "load_ranker": ("runs/answers", RankingSettings(seq_length=16)),
}


@pytest.fixture
def run(name, tiny, small_tokenizer, tmp_path: pathlib.Path, monkeypatch) -> None:
    """The run of random weights that the lines of a name load, from the working directory."""
    monkeypatch.chdir(tmp_path)
    if name not in RUNS:
        return
    tf_keras.utils.set_random_seed(1)
    (path, task), rng = RUNS[name], np.random.default_rng(0)
    shapes = head_shapes(tiny, task)
    head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    (tmp_path / "runs").mkdir()
    native.write(Bundle(tiny, head, small_tokenizer, task), path)


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_use_give_what_they_show(name, run):
    text = getattr(albert_tf, name).__doc__
    summary, blank, *rest = text.splitlines()
    assert summary and not blank and rest[0].lstrip().startswith(">>> ")
    names = {"albert_tf": albert_tf, "tf": tf, "np": np}
    lines = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    found: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(lines, out=found.append)
    assert results.attempted >= 2 and not results.failed, "".join(found)
