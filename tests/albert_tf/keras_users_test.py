"""What users of single layers and models do beside our commands: ids as floats, fit, validation."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.kernels.cpu import CpuPrograms
from albert_tf.models.kernels.packing import Packing
from albert_tf.optimization import AdamW
from albert_tf.tasks.classifier.model import (
    ClassifierSettings,
    SequenceClassifier,
    SupervisedContrastive,
)
from albert_tf.tasks.embedding.model import EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.regressor.model import RegressorSettings, SequenceRegressor
from albert_tf.training.step import split_batch
from tests.albert_tf.keras_test import CASES, CONFIG, IDS

DRY = CONFIG.replace(hidden_dropout=0.0, attention_dropout=0.0)
SPEC = {name: tf.TensorSpec([None, None], tf.int32) for name in IDS}
REPEATS = 20  # a graph runs what has no order in any order


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_ids_that_came_as_floats_are_not_rounded(dtype: str):
    """As those of `Input` without a dtype; bfloat16 has no 2,999."""
    encoder = AlbertEncoder(DRY.replace(vocab_size=3000), dtype=dtype).create_weights()
    task = SequenceClassifier(encoder, ClassifierSettings(labels=("a", "b"))).create_weights()
    ids = IDS | {"input_word_ids": IDS["input_word_ids"] + 2939}
    inputs = {name: tf_keras.Input([None], name=name) for name in INPUTS}
    model = tf_keras.Model(inputs, [encoder(inputs)["sequence_output"], task(inputs)])
    wanted = encoder(ids)["sequence_output"], task(ids)
    for found, one in zip(model.predict_on_batch(ids), wanted, strict=True):
        np.testing.assert_allclose(found, one, atol=0.02)  # other ids differ by more than 1


def test_the_state_of_weights_without_gradient_is_loaded(tmp_path: pathlib.Path):
    """The pooler has none if the head reads the mean of all outputs."""
    task = ClassifierSettings(labels=("a", "b"), pooling="mean")
    model = SequenceClassifier(AlbertEncoder(DRY), task, accumulation_steps=3)
    model.compile(AdamW(0.01), model.training_losses())
    model.fit(IDS, np.array([0, 1, 1]), epochs=2, batch_size=3, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = tf_keras.models.load_model(tmp_path / "m.keras")
    assert int(loaded.optimizer.iterations) == 2
    ours, theirs = (each.optimizer.variables for each in (model, loaded))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_validation_of_a_contrastive_classifier():
    task = ClassifierSettings(labels=("a", "b"), pooling="mean", loss="contrastive")
    model = SequenceClassifier(AlbertEncoder(DRY), task)
    model.compile(AdamW(0.01), model.training_losses(), metrics=["accuracy"])
    labels = np.array([0, 1, 1])
    loss, accuracy = model.evaluate(IDS, labels, batch_size=3, verbose=0)
    vectors = model.text_vectors()(IDS)
    wanted = SupervisedContrastive(task.contrast_temperature)(labels, vectors)
    assert loss == pytest.approx(float(wanted), rel=1e-5)
    right = np.argmax(model(IDS), axis=1) == labels
    assert accuracy == pytest.approx(right.mean())


@pytest.mark.parametrize("loss", ["teacher_squared", "simcse"])
def test_validation_of_embeddings_is_the_training_loss_without_dropout(loss: str):
    model = EmbeddingModel(AlbertEncoder(DRY), EmbeddingSettings(loss=loss)).create_weights()
    model.compile(AdamW(0.0), model.training_losses())
    outputs = model(IDS, training=True)
    labels = outputs if loss == "teacher_squared" else np.arange(3, dtype=np.int32)
    found = model.evaluate(IDS, labels, batch_size=3, verbose=0)
    trained = model.fit(IDS, labels, batch_size=3, verbose=0).history["loss"][0]
    assert found == pytest.approx(trained, abs=1e-5)
    if loss == "teacher_squared":
        assert found == pytest.approx(0, abs=1e-9)


def test_the_packing_of_an_empty_batch():
    """As a replica has it when the last batch is smaller than their number."""
    packing = Packing.of(tf.zeros([0, 8], tf.int32))
    assert packing.unpack(packing.pack(tf.zeros([0, 4]))).shape == [0, 4]


@pytest.mark.parametrize(
    "name", ["AlbertEmbeddings", "SharedStack", "EncoderBlock", "SelfAttention", "FeedForward"]
)
def test_a_layer_alone_drops_in_training(name: str):
    case = CASES[name]
    layer = case.make()
    one, other, same, again = (
        np.asarray(tf.nest.flatten(layer(*case.inputs, training=training))[-1])
        for training in (True, True, False, False)
    )
    assert (one != other).any() and (one != same).any() and (same == again).all()


def test_rounding_to_bfloat16_has_a_gradient():
    x = tf.constant([1.0, -2.3, 1e-3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = CpuPrograms().round_to(x, tf.bfloat16)
    np.testing.assert_array_equal(y, tf.cast(x, tf.bfloat16))
    np.testing.assert_array_equal(tape.gradient(y, x), [1, 1, 1])


def test_weights_of_a_new_task_model(tmp_path: pathlib.Path):
    path = str(tmp_path / "m.weights.h5")
    one, other = (SequenceRegressor(AlbertEncoder(DRY), RegressorSettings()) for _ in range(2))
    one.create_weights().save_weights(path)
    other.load_weights(path)
    np.testing.assert_array_equal(other(IDS), one(IDS))


def test_a_batch_that_cannot_be_divided():
    in_a_graph = tf.function(lambda batch: split_batch(batch, 2), input_signature=[SPEC])
    for split in [lambda batch: split_batch(batch, 2), *[in_a_graph] * REPEATS]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="`accumulation_steps`, 2, .*drop"):
            split(IDS)


@pytest.mark.parametrize(
    ("length", "message"),
    [(0, "must have at least one piece"), (DRY.max_positions + 1, "must not be longer than")],
)
def test_lengths_that_do_not_fit(length: int, message: str):
    ids = {name: np.zeros([3, length], np.int32) for name in IDS}
    encoder = AlbertEncoder(DRY).create_weights()
    with pytest.raises(ValueError, match="must not be empty or longer"):
        encoder(ids)
    in_a_graph = tf.function(encoder, input_signature=[SPEC])
    for _ in range(REPEATS):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            in_a_graph(ids)


def test_a_pattern_alone_is_no_list_of_patterns():
    with pytest.raises(ValueError, match="`exclude` must be a list of patterns. Received: 'bias'"):
        AdamW(0.1, exclude="bias")
