"""Tests that fine-tuning on a CPU, which skips padding, has the gradients of the padded batch."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.kernels import packing
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.tokens.model import IGNORED, TokenSettings
from finetuning.kinds.text_kind import SoftCrossEntropy
from finetuning.kinds.tokens import PerWordLoss

# [CLS] a a [SEP] b b b [SEP], with padding behind three of four.
LENGTHS, SIZE = np.array([8, 6, 8, 5]), (4, 10)
MASK = np.arange(10) < LENGTHS[:, None]
TYPES = MASK & (np.arange(10) > 3)
IDS = np.random.default_rng(0).integers(5, 60, SIZE)
TAGS = np.where(MASK & (np.arange(10) % 2 > 0), IDS % 3, IGNORED)
TEACHER = np.where(TAGS[:, :, None] != IGNORED, np.sin(IDS)[:, :, None] * [1, 2, 3], np.nan)
NAMES, LABELS = ("a", "b", "c"), np.array([0, 2, 1, 2])
SPANS = {"start_position": np.array([5, 4, 0, 4]), "end_position": np.array([6, 4, 0, 4])}
WORDS = TokenSettings(NAMES, scheme="words", dropout=0.0)

CASES = {
    "classifier": (ClassifierSettings(NAMES, dropout=0.0), LABELS),
    "every layer": (ClassifierSettings(NAMES, dropout=0.0, exit_losses=True), LABELS),
    "regressor": (RegressorSettings(dropout=0.0), np.array([0.5, 2, -1, 0], np.float32)),
    "multi-label": (MultiLabelSettings(NAMES, dropout=0.0), np.eye(4, 3, dtype=np.float32)),
    "choice": (MultipleChoiceSettings(dropout=0.0), np.array([1, 0])),
    "tokens": (WORDS, TAGS),
    "tokens of a teacher": (WORDS, TEACHER.astype(np.float32)),
    "span": (SpanSettings(dropout=0.0), SPANS),
    "span or none": (
        SpanSettings(answerable=True, dropout=0.0),
        SPANS | {"is_impossible": np.array([0, 0, 1, 0])},
    ),
}


@pytest.mark.slow_parameters(*(name for name in CASES if name != "tokens"))
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_padded_batch(monkeypatch, tiny, name):
    monkeypatch.setattr(packing, "SMALLEST", 0)
    of_mask, used = packing.Packing.of, []
    monkeypatch.setattr(packing.Packing, "of", lambda mask: used.append(1) or of_mask(mask))
    packed = weights_after_a_step(tiny, name)
    assert used
    used.clear()
    plain = weights_after_a_step(tiny, name, kernels="plain")
    assert not used
    for one, other in zip(packed, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def weights_after_a_step(tiny, name: str, kernels: str = "auto") -> list[np.ndarray]:
    task, targets = CASES[name]
    tf_keras.utils.set_random_seed(5)
    tiny = tiny.replace(num_layers=2, hidden_dropout=0.0, attention_dropout=0.0)
    model = KINDS[task.kind].model(AlbertEncoder(tiny), task).create_weights()
    model.kernels = kernels
    loss = PerWordLoss(SoftCrossEntropy(2.0), 1.0) if "teacher" in name else model.training_losses()
    model.compile(tf_keras.optimizers.SGD(1.0), loss)
    inputs = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": TYPES}
    inputs = {name: tf.constant(values, tf.int32) for name, values in inputs.items()}
    if name == "choice":  # the second question has one option less
        present = [[[1], [1]], [[1], [0]]]
        inputs = {name: tf.reshape(values, [2, 2, 10]) for name, values in inputs.items()}
        inputs["input_mask"] *= present
    if name == "span or none":
        inputs["start_position"] = tf.constant(targets["start_position"], tf.int32)
    model.train_on_batch(inputs, targets)
    return model.get_weights()
