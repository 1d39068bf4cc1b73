"""Tests of texts that are longer than the model's input, and are read in windows."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import split_windows
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import (
    MultiLabelSettings,
)
from albert_tf.tasks.multi_label.module import MultiLabelModule
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.features import featurize_choices
from albert_tf.tasks.multiple_choice.model import MultipleChoiceModel, MultipleChoiceSettings
from albert_tf.tasks.multiple_choice.module import MultipleChoiceModule
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.regressor.module import RegressorModule
from albert_tf.tasks.texts import featurize_texts
from tests.albert_tf.tasks.span_features_test import TOKENIZER

LONG = "a b c d e f g h"  # eight pieces: in windows of three, 2 + 3 + 3


def task_of(cls, long_texts="mean", **values):
    return cls(seq_length=5, long_texts=long_texts, **values)


def test_rows_are_split_evenly():
    rows = [[1, 2, 3], [], list(range(7)), list(range(8))]
    parts, row = split_windows(rows, 3)
    assert parts == [[1, 2, 3], [], [0, 1], [2, 3], [4, 5, 6], [0, 1], [2, 3, 4], [5, 6, 7]]
    assert row.tolist() == [0, 1, 2, 2, 2, 3, 3, 3]
    for limit in (1, 2, 5):
        for part in split_windows(rows, limit)[0]:
            assert len(part) <= limit


def test_windows_have_the_label_of_their_text():
    examples = [TextExample(LONG, None, 1), TextExample("a", None, 0)]
    features = featurize_texts(examples, TOKENIZER, task_of(ClassifierSettings, labels=("x", "y")))
    assert features.sequences.lengths.tolist() == [4, 5, 5, 3]
    assert features.targets["label"].tolist() == [1, 1, 1, 0]
    assert features.example.tolist() == [0, 0, 0, 1] and features.cut == 0
    assert features.notes() == [
        "1 of 2 texts are longer than task.seq_length=5 and are read in windows, 4 in all"
    ]
    cut = featurize_texts(examples, TOKENIZER, ClassifierSettings(("x", "y"), seq_length=5))
    assert len(cut) == 2 and cut.cut == 1 and "are truncated" in cut.notes()[0]
    examples = [TextExample(LONG, None, (0, 2)), TextExample("a", None, ())]
    many = KINDS["multi_label"].featurize(
        examples, TOKENIZER, task_of(MultiLabelSettings, labels=tuple("xyz"))
    )
    assert many.targets["label"].tolist() == [[1, 0, 1]] * 3 + [[0, 0, 0]]


@pytest.mark.parametrize(("how", "first"), [("mean", [0.5, 0.5]), ("max", [0.9 / 1.6, 0.7 / 1.6])])
def test_pooling_by_hand(how, first):
    """Windows of probability 0.9, 0.3 and 0.3 for the first label; a text of one window of 0.2."""
    examples = [TextExample(LONG), TextExample("a")]
    task = task_of(ClassifierSettings, how, labels=("x", "y"))
    features = featurize_texts(examples, TOKENIZER, task)
    share = np.array([0.9, 0.3, 0.3, 0.2])
    logits = np.log(np.stack([share, 1 - share], axis=1)) + 7.0
    one, other = KINDS["classifier"].decode(logits, features, examples, task)
    np.testing.assert_allclose([*one["probabilities"].values()], first, rtol=1e-6)
    np.testing.assert_allclose([*other["probabilities"].values()], [0.2, 0.8], rtol=1e-6)
    scores = KINDS["regressor"].decode(share, features, examples, task_of(RegressorSettings, how))
    wanted = {"mean": 0.5, "max": 0.9}[how]
    assert [each["score"] for each in scores] == pytest.approx([wanted, 0.2])
    labels = KINDS["multi_label"].decode(
        np.log(share / (1 - share))[:, None],
        features,
        examples,
        task_of(MultiLabelSettings, how, labels=("x",)),
    )
    assert [each["probabilities"]["x"] for each in labels] == pytest.approx([wanted, 0.2])


def test_pairs_are_not_read_in_windows():
    with pytest.raises(ConfigError, match="`task.long_texts` must be cut for pairs"):
        task_of(ClassifierSettings, labels=("x", "y"), pair=True)


@pytest.mark.slow_parameters(
    "task0-ClassifierModule-mean", "task1-MultiLabelModule-max", "task2-RegressorModule-mean"
)
@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize(
    ("task", "module"),
    [
        (ClassifierSettings(("x", "y", "z"), seq_length=8), ClassifierModule),
        (MultiLabelSettings(("x", "y", "z"), seq_length=8), MultiLabelModule),
        (RegressorSettings(seq_length=8, center=3.0, scale=2.0), RegressorModule),
    ],
)
def test_exports_pool_like_the_predictor(tiny, small_tokenizer, task, module, how):
    tf_keras.utils.set_random_seed(3)
    task = dataclasses.replace(task, long_texts=how)
    encoder = AlbertEncoder(tiny.replace(num_layers=1, initializer_range=0.3))
    model = KINDS[task.kind].model(encoder, task).create_weights()
    texts = ["of the object " * 30, "", "the value", "one, two and three of them in a sequence"]
    kind, examples = KINDS[task.kind], [TextExample(text) for text in texts]
    features = kind.featurize(examples, small_tokenizer, task)
    assert len(features) > len(texts)
    wanted = kind.decode(predict(model, features, 4), features, examples, task)
    served = module(model, small_tokenizer)
    found = served.signatures()["serving_default"](tf.constant(texts))
    if task.kind == "regressor":
        np.testing.assert_allclose(found["score"], [w["score"] for w in wanted], atol=1e-5)
    else:
        probabilities = [[*each["probabilities"].values()] for each in wanted]
        np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-5)
    assert all(value.shape[0] == 0 for value in served.serve(tf.constant([], tf.string)).values())
    if task.kind == "classifier":
        with pytest.raises(InputError, match="--patience must be 0 .*task.long_texts"):
            ClassifierModule(model, small_tokenizer, patience=2)


def test_windows_of_a_context_by_hand():
    """Of 9 positions, 3 are special and the longest option has 3 pieces: 3 are the context's."""
    examples = [
        ChoiceExample("x", LONG, ("y", "y z"), 1),
        ChoiceExample("x", "", ("y", "z", "y"), 0),
    ]
    task = MultipleChoiceSettings(seq_length=9, num_choices=3, long_texts="mean")
    features = featurize_choices(examples, TOKENIZER, task)
    assert features.example.tolist() == [0, 0, 0, 1] and features.cut == 0
    inputs, targets = features.batch(np.arange(4), 9)
    assert targets["label"].numpy().tolist() == [1, 1, 1, 0]
    lengths = inputs["input_mask"].numpy().sum(axis=-1)
    assert lengths.tolist() == [[7, 8, 0], [8, 9, 0], [8, 9, 0], [5, 5, 5]]
    # [CLS] c d e [SEP] x y [SEP]
    assert inputs["input_word_ids"][1, 0, :8].numpy().tolist() == [2, 7, 8, 9, 3, 28, 29, 3]
    share = np.array([[0.9, 0.1, 0], [0.3, 0.7, 0], [0.3, 0.7, 0], [0.2, 0.3, 0.5]])
    logits = np.log(np.maximum(share, 1e-300))
    one, other = KINDS["multiple_choice"].decode(logits, features, examples, task)
    np.testing.assert_allclose(one["probabilities"], [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(other["probabilities"], [0.2, 0.3, 0.5], rtol=1e-6)
    task = dataclasses.replace(task, long_texts="max")
    one, other = KINDS["multiple_choice"].decode(logits, features, examples, task)
    np.testing.assert_allclose(one["probabilities"], [0.9 / 1.6, 0.7 / 1.6], rtol=1e-6)


def test_questions_cut_in_each_window_count_once():
    """Ten windows of two questions; the first one's second option has 5 pieces with it, not 3."""
    examples = [
        ChoiceExample("x", " ".join("abcdefgh" * 3), ("y", "a b c d"), 1),
        ChoiceExample("x", "a b c d e", ("y", "z"), 0),
    ]
    task = MultipleChoiceSettings(seq_length=9, num_choices=2, long_texts="mean")
    features = featurize_choices(examples, TOKENIZER, task)
    assert features.example.tolist() == [0] * 8 + [1] * 2
    assert (features.cut, features.num_examples, len(features)) == (1, 2, 10)
    assert features.notes() == [
        "1 of 2 examples are longer than task.qa_length=128, or half of task.seq_length=9, and are "
        "truncated",
        "2 of 2 texts are longer than task.seq_length=9 and are read in windows, 10 in all",
    ]


@pytest.mark.slow_parameters("cut", "max")
@pytest.mark.parametrize("how", ["cut", "mean", "max"])
def test_exports_of_choices_read_the_same_windows(tiny, small_tokenizer, how):
    tf_keras.utils.set_random_seed(3)
    task = MultipleChoiceSettings(seq_length=12, num_choices=2, qa_length=6, long_texts=how)
    encoder = AlbertEncoder(tiny.replace(num_layers=1, initializer_range=0.3))
    model = MultipleChoiceModel(encoder, task).create_weights()
    contexts = ["of the object " * 20, "", "the value"]
    questions, options = ["what is it?", "a _", "x"], [["a", "the object"], ["b", ""], ["a", "b"]]
    examples = [
        ChoiceExample(*row[:2], tuple(row[2]))
        for row in zip(questions, contexts, options, strict=True)
    ]
    features = featurize_choices(examples, small_tokenizer, task)
    assert (len(features) > 3) == (how != "cut")
    wanted = KINDS["multiple_choice"].decode(predict(model, features, 4), features, examples, task)
    signatures = MultipleChoiceModule(model, small_tokenizer).signatures()
    texts = [tf.constant(each) for each in (questions, contexts, options)]
    found = signatures["serving_default"](*texts)["probabilities"]
    np.testing.assert_allclose(found, [each["probabilities"] for each in wanted], atol=1e-5)
    wider = [[*row, "ignored", "x"] for row in options]
    padded = signatures["padded"](*texts[:2], tf.constant(wider), tf.constant([2, 2, 2]))
    np.testing.assert_allclose(padded["probabilities"][:, :2], found, atol=1e-5)
    assert not padded["probabilities"][:, 2:].numpy().any()
    for texts[1:] in ([contexts, wider[:1]], [contexts[:1], wider]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="same number of entries"):
            signatures["padded"](*map(tf.constant, texts), tf.constant([2, 2, 2]))
