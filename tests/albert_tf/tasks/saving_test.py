"""What `save_model` writes, and what it refuses; tests/kinds tries it with every kind of task."""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.head import MLM_HEAD, Head
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import AdamW
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.predictor import load_predictor

RNG = np.random.default_rng(0)
IDS = {name: RNG.integers(0, 2, [6, 9]).astype(np.int32) for name in INPUTS}
TASK = ClassifierSettings(("bad", "good"), seq_length=16)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "runs" / "mine")


@pytest.fixture
def encoder(tiny) -> AlbertEncoder:
    tf_keras.utils.set_random_seed(3)
    return AlbertEncoder(tiny).create_weights()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_model_that_was_trained_with_frozen_layers(dtype, tiny, small_tokenizer, path):
    model = SequenceClassifier(AlbertEncoder(tiny, dtype=dtype), TASK).create_weights()
    model.encoder.embeddings.trainable = False
    before = model.get_weights()
    model.compile(AdamW(0.01), model.training_losses(), ["accuracy"])
    model.fit(IDS, np.arange(6) % 2, batch_size=3, verbose=0)
    albert_tf.save_model(model, path, small_tokenizer)
    saved = [name for name, _ in tf.train.list_variables(f"{path}/checkpoints/ckpt-1")]
    assert not any("optimizer" in name or "keras_api" in name for name in saved)
    expected = SequenceClassifier(AlbertEncoder(tiny), TASK).create_weights()
    expected.encoder.embeddings.trainable = False  # the order of the weights
    expected.set_weights(model.get_weights())
    loaded = load_predictor(path).model
    np.testing.assert_array_equal(loaded.predict(IDS), expected.predict(IDS))
    assert any((one != other).any() for one, other in zip(before, model.get_weights(), strict=True))


def test_a_calibrated_model_is_not_divided_again(tiny, small_tokenizer, tmp_path, path):
    model = SequenceClassifier(AlbertEncoder(tiny), TASK).create_weights()
    albert_tf.save_model(model, path, small_tokenizer)
    config = pathlib.Path(path, "config.json")
    values = json.loads(config.read_text())
    values["task"]["logit_temperature"] = 4.0
    config.write_text(json.dumps(values))
    calibrated = load_predictor(path).model
    albert_tf.save_model(calibrated, tmp_path / "again", small_tokenizer)
    again = load_predictor(str(tmp_path / "again")).model
    np.testing.assert_array_equal(again(IDS), calibrated(IDS))
    np.testing.assert_array_equal(again(IDS), model(IDS) / 4)


def test_an_encoder_has_no_pretraining_heads(encoder, small_tokenizer, path):
    encoder.compile(AdamW(0.01))
    albert_tf.save_model(encoder, path, small_tokenizer)
    loaded = albert_tf.load_encoder(path)
    assert loaded.config == encoder.config
    np.testing.assert_array_equal(loaded(IDS)["pooled_output"], encoder(IDS)["pooled_output"])
    for load in (albert_tf.load_pretrainer, albert_tf.load_fill_mask):
        with pytest.raises(InputError, match="is an encoder and has no pretraining heads: pass"):
            load(path)


@pytest.mark.parametrize("heads", [None, (MLM_HEAD, Head("topic", "pooled_output", 5))])
def test_a_pretrainer(heads, tiny, small_tokenizer, path):
    pretrainer = AlbertPretrainer(tiny, **({"heads": heads} if heads else {})).create_weights()
    albert_tf.save_model(pretrainer, path, small_tokenizer)
    loaded, inputs = albert_tf.load_pretrainer(path), IDS | {"masked_lm_positions": IDS[INPUTS[0]]}
    assert loaded.heads == pretrainer.heads
    tf.nest.map_structure(np.testing.assert_array_equal, loaded(inputs), pretrainer(inputs))
    albert_tf.load_fill_mask(path)


def test_a_model_without_weights_gets_new_ones(tiny, small_tokenizer, path):
    model = SequenceClassifier(AlbertEncoder(tiny), TASK)
    albert_tf.save_model(model, path, small_tokenizer)
    np.testing.assert_array_equal(load_predictor(path).model(IDS), model(IDS))


class Foreign(tf_keras.layers.Layer):
    """An encoder of another project."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda encoder: SequenceClassifier(Foreign(), TASK),
            "Received: a SequenceClassifier with a Foreign. Save",
        ),
        (lambda encoder: tf_keras.Sequential([encoder]), "Received: Sequential. Save others with"),
        (
            lambda encoder: SequenceClassifier(encoder, TASK.replace(seq_length=64)),
            "`model`: `task.seq_length` must not exceed the model's `max_positions`",
        ),
    ],
)
def test_models_that_could_not_be_loaded_are_refused(
    model, message, encoder, small_tokenizer, path
):
    with pytest.raises(InputError, match=message):
        albert_tf.save_model(model(encoder), path, small_tokenizer)
    assert not os.path.lexists(os.path.dirname(path))


def test_the_tokenizer_must_be_the_model_s(tiny, comma_tokenizer, path):
    encoder = AlbertEncoder(tiny)
    with pytest.raises(InputError, match="300 pieces. Received: Tokenizer, of 400 pieces. Pass"):
        albert_tf.save_model(encoder, path, comma_tokenizer)
    with pytest.raises(InputError, match="300 pieces. Received: str. Pass"):
        albert_tf.save_model(encoder, path, "albert-mini-en")
    assert not os.path.lexists(os.path.dirname(path))


def test_a_folder_with_files_is_left_alone(encoder, small_tokenizer, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="`path` must name a new or empty folder. Received"):
        albert_tf.save_model(encoder, tmp_path, small_tokenizer)
    assert [file.name for file in tmp_path.iterdir()] == ["note.txt"]
