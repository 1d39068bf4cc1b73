"""A batch in parts: the training of the whole batch, exact continuation, what cannot be divided."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.optimization.layerwise_adamw import LayerwiseAdamW
from albert_tf.runtime.devices import precision_policy
from albert_tf.runtime.errors import ConfigError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.spans.model import SpanModel, SpanSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.training.batches import training_batches
from finetuning.training.config import FinetuneConfig, Plan, TrainingConfig
from finetuning.training.fit import compiled, fine_tune
from finetuning.training.starting_point import StartingPoint, resolve


@pytest.fixture(scope="module")
def config(begin: StartingPoint, fruit: str) -> FinetuneConfig:
    data = DATASETS["text_classification"].read(Source(fruit))
    chosen = (
        "training.steps=6",
        "training.evaluate_every=2",
        "training.batch_size=8",
        "training.learning_rate=0.01",
        "task.seq_length=32",
        "training.clip_norm=0.1",
    )
    return resolve(begin, data, {}, chosen, "cpu")


def changed(config: FinetuneConfig, dropout: float, **training: object) -> FinetuneConfig:
    return dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, **training),
        task=dataclasses.replace(config.task, dropout=dropout),
        model=config.model.replace(hidden_dropout=dropout),
    )


def tune(
    begin: StartingPoint, config: FinetuneConfig, features: Features, path, stop: int = 9
) -> tuple:
    """(the losses, the weights at the end); a KeyError at the evaluation number `stop`."""
    run, count = RunDir(str(path)), 0
    run.begin({"model": {}}, begin.tokenizer)

    def evaluate(_: object) -> dict[str, float]:
        nonlocal count
        count += 1
        if count == stop:
            raise KeyError("cut off")
        return {"accuracy": float(len(run.metrics()))}  # the last one is the best

    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    plan = Plan.of(config.training, len(features))
    model = compiled(config, plan, lambda: begin.model(config), strategy)
    fine_tune(model, config, plan, features, evaluate, "accuracy", run)
    return [row["loss/train"] for row in run.metrics()], model.get_weights()


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 8])
def test_the_training_is_that_of_the_whole_batch(begin, config, features, tmp_path, parts: int):
    """Gradients are clipped on the way: their norm too is that of the whole batch."""
    whole = changed(config, dropout=0.0)
    losses, weights = tune(begin, whole, features, tmp_path / "whole")
    in_parts = changed(config, dropout=0.0, accumulation_steps=parts)
    same, others = tune(begin, in_parts, features, tmp_path / "parts")
    assert same == pytest.approx(losses, rel=1e-4)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


@pytest.mark.slow
def test_a_run_in_parts_that_was_cut_off_goes_on_to_the_same_weights(
    begin, config, features, tmp_path
):
    in_parts = changed(config, dropout=0.1, accumulation_steps=4)
    _, whole = tune(begin, in_parts, features, tmp_path / "whole")
    with pytest.raises(KeyError):
        tune(begin, in_parts, features, tmp_path / "cut", stop=2)
    _, again = tune(begin, in_parts, features, tmp_path / "cut")
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_each_part_draws_different_dropout(begin, config, features, monkeypatch):
    config, keys = changed(config, dropout=0.1, accumulation_steps=2), []
    plan, strategy = Plan.of(config.training, len(features)), tf.distribute.get_strategy()
    model = compiled(config, plan, lambda: begin.model(config), strategy)
    batch = next(iter(training_batches(features, 8, config.seed, 0, 1, False)))
    keyed = model._keyed

    def recorded(key: tf.Tensor):
        keys.append(tuple(key.numpy().tolist()))
        return keyed(key)

    monkeypatch.setattr(model, "_keyed", recorded)
    for step in (0, 1, 0):
        model.optimizer.iterations.assign(step)
        model.train_step(batch)
    assert len(keys) == 6 and len(set(keys)) == 4
    assert keys[:2] == keys[4:]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_pooler_without_a_gradient_stays(config, precision: str):
    """Of spans: several targets, hints, and a weight that decay alone would move."""
    task = SpanSettings(answerable=True, dropout=0.0)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 20, [4, 12]).astype(np.int32)
    inputs = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.repeat([[0] * 4 + [1] * 8], 4, axis=0).astype(np.int32),
        "start_position": np.full([4], 5, np.int32),
    }
    targets = {
        "start_position": np.full([4], 5),
        "end_position": np.arange(6, 10),
        "is_impossible": np.array([0, 1, 0, 0]),
    }
    after = []
    for parts in (1, 2):
        tf_keras.utils.set_random_seed(0)
        with precision_policy(precision):
            model = SpanModel(AlbertEncoder(config.model), task).create_weights()
        pooler = model.encoder.pooler.get_weights()[0]
        model.compile(
            LayerwiseAdamW(0.01, factors=[1.0] * len(model.trainable_variables)),
            model.training_losses(),
        )
        model.optimizer.build(model.trainable_variables)
        model.accumulation_steps = parts
        losses = model.fit(tf.data.Dataset.from_tensors((inputs, targets)).repeat(3), verbose=0)
        np.testing.assert_array_equal(model.encoder.pooler.get_weights()[0], pooler)
        after.append((losses.history["loss"][0], model.head.get_weights()[0]))
    tolerance = 1e-4 if precision == "float32" else 2e-2
    assert after[1][0] == pytest.approx(after[0][0], rel=tolerance)
    if precision == "float32":
        np.testing.assert_allclose(after[1][1], after[0][1], atol=1e-4)


def test_a_batch_that_cannot_be_divided():
    TrainingConfig(batch_size=48, accumulation_steps=12).check_batch(4)
    with pytest.raises(
        ConfigError, match=r"batch_size.*Received: 48, which is not a multiple of 4 x 5"
    ):
        TrainingConfig(batch_size=48, accumulation_steps=5).check_batch(4)
    with pytest.raises(ConfigError, match=r"`training.accumulation_steps` must be positive"):
        TrainingConfig(accumulation_steps=0)
