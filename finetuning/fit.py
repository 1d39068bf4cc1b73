"""Training a task model with tf_keras `compile` and `fit`."""

import math
import sys
import warnings

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints import is_saved_model, load_encoder, set_variables
from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder
from albert_tf.optimization import AdamW, LinearWarmupLinearDecay
from albert_tf.runs import RunDir
from albert_tf.tasks.classifier import ClassifierTask, SequenceClassifier, featurize
from albert_tf.tokenization import Tokenizer
from finetuning.config import FinetuneConfig, TrainingConfig
from finetuning.task import Examples


def encoder_from(init: str) -> tf_keras.layers.Layer:
    """The encoder to start from: `hub.KerasLayer` for an exported one, else an AlbertEncoder.

    Raises: as `albert_tf.load_encoder`.
    """
    own = load_encoder(init)
    if not is_saved_model(init):
        return own
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
        import tensorflow_hub as hub
    return hub.KerasLayer(init, trainable=True, name="encoder")


def fine_tune(
    config: FinetuneConfig,
    encoder: tf_keras.layers.Layer,
    tokenizer: Tokenizer,
    train: Examples,
    dev: Examples,
    run: RunDir,
) -> float:
    """Trains, logs each epoch to the run, leaves its checkpoint, returns the dev accuracy."""
    tf_keras.utils.set_random_seed(config.seed)
    values = config.training
    model = SequenceClassifier(encoder, config.task).create_weights()
    model.compile(
        optimizer=_optimizer(values, len(train.labels)),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    x, y = _features(train, tokenizer, config.task)
    history = model.fit(
        x,
        y,
        values.batch_size,
        values.epochs,
        validation_data=_features(dev, tokenizer, config.task),
        callbacks=[_EpochLog(run), tf_keras.callbacks.TensorBoard(run.tensorboard_path)],
        verbose="auto" if sys.stdout.isatty() else 2,
    )
    if not isinstance(encoder, AlbertEncoder):
        model = _with_own_encoder(model, config.model)
    checkpoint = tf.train.Checkpoint(model=model)
    tf.train.CheckpointManager(checkpoint, run.checkpoints_path, max_to_keep=1).save()
    return history.history["val_accuracy"][-1]


class _EpochLog(tf_keras.callbacks.Callback):
    """A row of metrics.jsonl per epoch; `step` counts the epochs."""

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self._run = run

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._run.keep_metrics_until(0)  # what an interrupted try left

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        values = logs or {}
        self._run.add_metrics({
            "step": epoch + 1,
            "loss/train": values["loss"],
            "loss/dev": values["val_loss"],
            "accuracy/train": values["accuracy"],
            "accuracy/dev": values["val_accuracy"],
        })  # fmt: skip


def _optimizer(values: TrainingConfig, num_examples: int) -> AdamW:
    steps = values.epochs * math.ceil(num_examples / values.batch_size)
    schedule = LinearWarmupLinearDecay(
        values.learning_rate, round(steps * values.warmup_fraction), steps
    )
    return AdamW(
        schedule,
        weight_decay_rate=values.weight_decay_rate,
        global_clipnorm=values.clip_norm,
    )


def _with_own_encoder(model: SequenceClassifier, config: AlbertConfig) -> SequenceClassifier:
    """The same weights around an AlbertEncoder: one kind of run, wherever its encoder came from."""
    encoder = AlbertEncoder(config).create_weights()
    set_variables(encoder, model.encoder.variables, "the Hub module")
    own = SequenceClassifier(encoder, model.task).create_weights()
    own.head.set_weights(model.head.get_weights())
    return own


def _features(
    examples: Examples, tokenizer: Tokenizer, task: ClassifierTask
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    first = tokenizer.encode_batch(list(examples.first))
    second = tokenizer.encode_batch(list(examples.second)) if examples.second is not None else None
    features = featurize(first, second, task.seq_length, tokenizer.special)
    return features, np.array(examples.labels, np.int32)
