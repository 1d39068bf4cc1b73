"""`load_ranker` of runs and exports: the scores of the predictor, in the order of the texts."""

import os
import pickle

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.predictor import load_predictor
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.model import RankingSettings

QUERY = "What is an object?"
TEXTS = ["the value of an object " * 3, "it", "", "a list, or none", "it"]


@pytest.fixture(scope="module")
def run(tiny, small_tokenizer, tmp_path_factory) -> str:
    tf_keras.utils.set_random_seed(2)
    task, rng = RankingSettings(seq_length=32), np.random.default_rng(0)
    shapes = head_shapes(tiny, task)
    head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    folder = str(tmp_path_factory.mktemp("run"))
    native.write(Bundle(tiny.replace(num_layers=1), head, small_tokenizer, task), folder)
    return folder


@pytest.fixture(scope="module")
def ranker(run: str):
    return albert_tf.load_ranker(run)


@pytest.fixture(scope="module")
def exported(run: str, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("export") / "out")
    export(ExportOptions(run, output))
    return albert_tf.load_ranker(f"{output}/1")


def test_scores_in_batches_are_those_of_the_predictor(run, ranker):
    (answer,) = load_predictor(run)([RankingExample(QUERY, tuple(TEXTS))])
    for batch_size in (1, 3, 32):
        scores = ranker(QUERY, iter(TEXTS), batch_size)
        assert scores.dtype == np.float32 and scores.shape == (5,)
        np.testing.assert_allclose(scores, answer["scores"], atol=1e-5)
    assert ranker(QUERY, []).shape == (0,) and ranker.task.seq_length == 32
    assert ranker("", [""]).shape == (1,)


def test_the_best_texts_come_first(ranker):
    scores = ranker(QUERY, TEXTS)
    ranked = ranker.rank(QUERY, TEXTS)
    assert [score for _, score in ranked] == sorted(scores.tolist(), reverse=True)
    assert {*ranked} == {*enumerate(scores.tolist())}
    order = [row for row, _ in ranked]
    assert order.index(1) + 1 == order.index(4)  # the same text, so the earlier one first
    assert ranker.rank(QUERY, TEXTS, top_k=2, batch_size=5) == ranked[:2]
    assert ranker.rank(QUERY, TEXTS, top_k=9) == ranked and ranker.rank(QUERY, []) == []


def test_an_export_has_the_same_scores(ranker, exported, tmp_path, monkeypatch):
    """Also in another process, and in another folder."""
    assert exported.task == ranker.task
    tf.random.set_seed(1)  # frees the resources of TensorFlow's operators
    texts = [*TEXTS, "half \ud83d a pair"]
    np.testing.assert_allclose(exported(QUERY, texts, 2), ranker(QUERY, texts), atol=1e-5)
    for original in (exported, ranker):
        monkeypatch.chdir(os.path.dirname(original._path))
        content = pickle.dumps(albert_tf.load_ranker(os.path.basename(original._path)))
        monkeypatch.chdir(tmp_path)
        copy = pickle.loads(content)
        np.testing.assert_array_equal(copy(QUERY, TEXTS), original(QUERY, TEXTS))
    assert [row for row, _ in exported.rank(QUERY, TEXTS, 3)] == [
        row for row, _ in ranker.rank(QUERY, TEXTS, 3)
    ]


def test_progress(ranker, capsys, monkeypatch):
    monkeypatch.setattr("albert_tf.training.progress.LINE_EVERY_S", 0.0)
    ranker(QUERY, TEXTS)
    assert not capsys.readouterr().err
    ranker(QUERY, TEXTS, batch_size=2, show_progress_bar=True)
    assert capsys.readouterr().err.startswith("2/5 texts")


@pytest.mark.parametrize(
    ("query", "texts", "options", "message"),
    [
        (QUERY, "one text", {}, "takes a list of strings"),
        (QUERY, [3], {}, "3 as number 0"),
        ([QUERY], TEXTS, {}, "`query` must be a string"),
        (QUERY, TEXTS, {"batch_size": 0}, "`batch_size` must be a positive integer. Received: 0"),
        (QUERY, TEXTS, {"top_k": 0}, "`top_k` must be a positive integer. Received: 0"),
    ],
)
def test_invalid_arguments_are_refused(ranker, query, texts, options, message):
    with pytest.raises(InputError, match=message):
        ranker.rank(query, texts, **options)


def test_models_of_other_kinds_are_refused(pretrained, exports):
    with pytest.raises(InputError, match="a run of kind ranking. .*'pretraining'. Train one"):
        albert_tf.load_ranker(pretrained)
    with pytest.raises(InputError, match="an export of kind ranking"):
        albert_tf.load_ranker(str(exports / "fill_mask" / "1"))
