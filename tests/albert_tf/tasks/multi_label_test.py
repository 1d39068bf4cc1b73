"""Tests of the multi-label classifier: its features, model, answers and ensembles."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, logit

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures, pack
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import (
    MultiLabelClassifier,
    MultiLabelSettings,
)
from albert_tf.text.tokenizer import SpecialIds

TASK = MultiLabelSettings(labels=("anger", "joy", "love"), seq_length=12)


def texts(count: int) -> TextFeatures:
    """The features of texts of no pieces."""
    empty: list[list[int]] = [[]] * count
    return TextFeatures(
        pack(empty, None, 12, SpecialIds(0, 1, 2, 3, 4)), 12, example=np.arange(count)
    )


@pytest.mark.parametrize("labels", [(), ("a", "a"), ("a", "b", "a")])
def test_labels_must_differ(labels):
    with pytest.raises(ConfigError, match=r"`task.labels` must be one or more.*Received: \("):
        MultiLabelSettings(labels)


@pytest.mark.parametrize("thresholds", [(0.5,), (0.5,) * 4, (0.5, 0.5, 1.1), (0.5, 0.5, -0.1)])
def test_thresholds_must_fit(thresholds):
    with pytest.raises(ConfigError, match=r"`task.thresholds` .* each of the 3 labels\. Received"):
        MultiLabelSettings(TASK.labels, thresholds)


def test_thresholds_are_a_half_unless_chosen():
    assert TASK.thresholds == (0.5, 0.5, 0.5)
    values = settings.to_dict(TASK)
    assert settings.from_dict(MultiLabelSettings, values) == TASK
    del values["thresholds"]
    assert settings.from_dict(MultiLabelSettings, values) == TASK


def test_targets_are_indicators(small_tokenizer):
    examples = [TextExample("a", label=(0, 2)), TextExample("b c", label=())]
    features = KINDS["multi_label"].featurize(examples, small_tokenizer, TASK)
    label = features.targets["label"]
    assert label.tolist() == [[1, 0, 1], [0, 0, 0]] and label.dtype == np.float32
    unknown = KINDS["multi_label"].featurize([*examples, TextExample("d")], small_tokenizer, TASK)
    assert unknown.targets == {} and len(unknown) == 3
    with pytest.raises(InputError, match="takes single texts"):
        KINDS["multi_label"].featurize([TextExample("a", "b", ())], small_tokenizer, TASK)


@pytest.mark.parametrize("kind", [list, np.array])
def test_labels_may_be_any_list(small_tokenizer, kind):
    examples = [TextExample("a", label=kind([2, 0])), TextExample("b", label=kind([]))]
    features = KINDS["multi_label"].featurize(examples, small_tokenizer, TASK)
    assert features.targets["label"].tolist() == [[1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("label", "received"),
    [
        ((0, 3), "3"),
        ((-1,), "-1"),
        ((1.0,), "1.0"),
        ([True, False], "True"),
        (("joy",), "'joy'"),
        ("joy", "'j'"),
        (1, "1"),
    ],
)
def test_a_label_that_is_none_of_the_tasks_is_refused(small_tokenizer, label, received):
    examples = [TextExample("a", label=()), TextExample("b", label=label)]
    message = rf"`label` of example 1 must be a list .* in \[0, 3\). Received: {received}\."
    with pytest.raises(InputError, match=message):
        KINDS["multi_label"].featurize(examples, small_tokenizer, TASK)


@pytest.fixture(scope="module")
def model(tiny) -> MultiLabelClassifier:
    return MultiLabelClassifier(AlbertEncoder(tiny), TASK).create_weights()


def test_the_loss_by_hand(model):
    """Probabilities 0.8 and 0.5 of labels that are there, 0.4 of one that is not."""
    logits = tf.constant(logit([[0.8, 0.5, 0.4]]), tf.float32)
    loss = model.training_losses()(tf.constant([[1.0, 1.0, 0.0]]), logits)
    assert float(loss) == pytest.approx(-np.log(0.8 * 0.5 * 0.6) / 3, rel=1e-5)


def test_labels_above_their_thresholds_the_best_first():
    task = MultiLabelSettings(TASK.labels, (0.5, 0.2, 0.9))
    probabilities = np.array([[0.6, 0.3, 0.8], [0.5, 0.7, 0.95], [0.1, 0.1, 0.1]])
    answers = KINDS["multi_label"].decode(logit(probabilities), texts(3), [], task)
    assert [each["labels"] for each in answers] == [["anger", "joy"], ["love", "joy"], []]
    assert list(answers[0]["probabilities"]) == ["anger", "joy", "love"]
    found = [list(each["probabilities"].values()) for each in answers]
    np.testing.assert_allclose(found, probabilities)


def test_equally_probable_labels_are_in_order():
    (answer,) = KINDS["multi_label"].decode(np.ones([1, 3]), texts(1), [], TASK)
    assert answer["labels"] == ["anger", "joy", "love"]


def test_probabilities_are_averaged():
    members = [logit(np.array([[0.8, 0.2]])), logit(np.array([[0.4, 0.4]]))]
    np.testing.assert_allclose(expit(KINDS["multi_label"].average(members)), [[0.6, 0.3]])
