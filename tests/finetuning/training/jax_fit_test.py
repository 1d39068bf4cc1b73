"""Fine-tuning under JAX's client, compared with TensorFlow's steps."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.texts import featurize_texts
from albert_tf.training import jax_program
from albert_tf.training.jax_devices import JaxDevices
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.train import FinetuneOptions, main
from finetuning.training.config import Plan
from finetuning.training.fit import Fit, compiled, fine_tune, keras_fit
from finetuning.training.jax_fit import JaxFit, padded_width
from finetuning.training.starting_point import StartingPoint, resolve

pytest.importorskip("jax", reason="jax is absent: requirements-dev.txt")
CPU = tf.distribute.OneDeviceStrategy("/cpu:0")


def test_widths_are_few():
    widths = {padded_width(longest, 512) for longest in range(1, 513)}
    assert widths == {32, 64, 128, 256, 512}
    assert padded_width(96, 100) == 100 and padded_width(20, 24) == 24


def losses(begin: StartingPoint, fruit: str, folder: str, fit: Fit, **changes) -> list[float]:
    """The training losses of a run of six steps: dropout, weights of labels, two widths."""
    data = DATASETS["text_classification"].read(Source(fruit))
    chosen = (
        "training.steps=6",
        "training.evaluate_every=2",
        "training.batch_size=8",
        "training.learning_rate=0.01",
        "training.precision=float32",
        "training.class_weights=balanced",
        "task.seq_length=64",
        "model.hidden_dropout=0.1",
    )
    config = resolve(begin, data, {}, chosen, "cpu")
    config = dataclasses.replace(config, **changes)
    features = featurize_texts(data.train, begin.tokenizer, config.task)
    run, plan = RunDir(folder), Plan.of(config.training, len(features))
    run.begin({"model": {}}, begin.tokenizer)
    model = compiled(config, plan, lambda: begin.model(config), CPU)
    scores = iter((0.1, 0.2, 0.3))
    fine_tune(
        model,
        config,
        plan,
        features,
        lambda _: {"accuracy": next(scores)},
        "accuracy",
        run,
        fit=fit,
    )
    return [row["loss/train"] for row in run.metrics()]


def test_dropout_and_weights_of_labels_are_those_of_tensorflow(begin, fruit, tmp_path):
    theirs = losses(begin, fruit, str(tmp_path / "tensorflow"), keras_fit)
    ours = losses(begin, fruit, str(tmp_path / "jax"), JaxFit(JaxDevices("cpu")))
    assert len(ours) == 3 and ours == pytest.approx(theirs, rel=1e-5)


def test_bits_and_sizes_in_a_program():
    """A constant of bits, and a size that the type has already."""
    jax = jax_program.load_jax()
    rng = np.random.default_rng(0)
    mask = rng.random((5, 64)) < 0.5

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.where(tf.constant(mask), x, 0.0)]

    x = rng.normal(size=(5, 64)).astype(np.float32)
    program = jax_program.Program.of(function, [tf.TensorSpec([5, 64])], [])
    (found,) = jax.jit(lambda x: program((), x))(x)
    np.testing.assert_array_equal(found, np.where(mask, x, 0))


def test_several_workers_are_refused(fruit, tmp_path):
    options = FinetuneOptions(
        "text_classification",
        str(tmp_path / "run"),
        fruit,
        init="albert-mini-en",
        device="multi_worker",
        runtime="pjrt",
    )
    with pytest.raises(InputError, match="fine-tunes on one device"):
        main(options)
