"""Fine-tunes an encoder on labelled text, with plain tf_keras `compile` and `fit`.

--init takes a pretraining run, a converted checkpoint, or an exported encoder, which is then
trained as `hub.KerasLayer`. The run that it leaves is loaded, exported and asked in the same way.

    python -m finetuning.train --task=text_classification --data_dir=reviews --init=runs/first \\
        --run_dir=runs/reviews --set training.epochs=5
"""

import collections
import dataclasses
import hashlib
import json
import math
import os
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf import cli, settings
from albert_tf.checkpoints import (
    EXTRAS,
    is_saved_model,
    latest_checkpoint,
    load_encoder,
    set_variables,
)
from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder
from albert_tf.errors import InputError
from albert_tf.optimization import AdamW, LinearWarmupLinearDecay
from albert_tf.runs import RunDir
from albert_tf.tasks.classifier import ClassifierTask, SequenceClassifier, featurize
from albert_tf.tokenization import Tokenizer, load_tokenizer
from finetuning.config import FinetuneConfig
from finetuning.task import Examples
from finetuning.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """The command line of `finetuning.train`."""

    task: str = cli.option("the task: " + ", ".join(TASKS))
    data_dir: str = cli.option("the task's files")
    init: str = cli.option("run folder, converted folder or exported encoder")
    run_dir: str = cli.option("the run's folder")
    dry_run: bool = cli.option("print the resolved configuration and check everything", False)
    set: tuple[str, ...] = cli.option("key=value", ())


def main(options: FinetuneOptions) -> None:
    """Fine-tunes as `options` describe."""
    if options.task not in TASKS:
        raise InputError(f"--task: {settings.unknown_key(options.task, TASKS)}")
    task, train, dev = TASKS[options.task].read(options.data_dir)
    config = resolve(options, task)
    run = RunDir(options.run_dir)
    run_config = settings.to_dict(config) | {"init": options.init, "data": fingerprint(train, dev)}
    run.check(run_config)
    if options.dry_run:
        print(json.dumps(run_config, indent=1))
        return
    if run.is_complete:
        print(f"{run.path} is already complete: {json.dumps(run.result())}")
        return
    tokenizer = load_tokenizer(options.init)
    run.begin(run_config, tokenizer_from(options.init))
    start = time.monotonic()
    model, accuracy = fine_tune(config, options.init, tokenizer, train, dev)
    save(model, run)
    result = {
        "accuracy": accuracy,
        "baseline": majority_baseline(train, dev),
        "standard_error": math.sqrt(accuracy * (1 - accuracy) / len(dev.labels)),
        "dev_examples": len(dev.labels),
        "train_examples": len(train.labels),
        "seconds": round(time.monotonic() - start, 1),
    }
    run.finish(result)
    print(
        f"{run.path}: dev accuracy {accuracy:.4f} ± {result['standard_error']:.4f} over "
        f"{result['dev_examples']:,} examples (always the most frequent label: "
        f"{result['baseline']:.4f})"
    )


def resolve(options: FinetuneOptions, task: ClassifierTask) -> FinetuneConfig:
    """The configuration: the encoder's own, the task's, and the user's values."""
    folder = os.path.join(options.init, EXTRAS) if is_saved_model(options.init) else options.init
    model = AlbertConfig.from_json(os.path.join(folder, "config.json"))
    config = settings.override(FinetuneConfig(model, task), options.set)
    if config.model != model:
        raise InputError("`model` is the encoder's own: it cannot be changed when fine-tuning.")
    if config.task.seq_length > model.max_positions:
        length = min(config.task.seq_length, model.max_positions)
        if any(a.startswith("task.seq_length") for a in options.set):
            raise InputError(
                "`task.seq_length` must not exceed the encoder's `max_positions`. "
                f"Received: {config.task.seq_length}, {model.max_positions}."
            )
        config = dataclasses.replace(
            config, task=dataclasses.replace(config.task, seq_length=length)
        )
    return config


def fine_tune(
    config: FinetuneConfig, init: str, tokenizer: Tokenizer, train: Examples, dev: Examples
) -> tuple[SequenceClassifier, float]:
    """Trains and returns the model and its dev accuracy."""
    tf_keras.utils.set_random_seed(config.seed)
    values = config.training
    encoder = _encoder(init)
    model = SequenceClassifier(encoder, config.task).create_weights()
    steps = values.epochs * math.ceil(len(train.labels) / values.batch_size)
    schedule = LinearWarmupLinearDecay(
        values.learning_rate, round(steps * values.warmup_fraction), steps
    )
    model.compile(
        optimizer=AdamW(
            schedule,
            weight_decay_rate=values.weight_decay_rate,
            global_clipnorm=values.clip_norm,
        ),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    x, y = _features(train, tokenizer, config.task)
    dev_x, dev_y = _features(dev, tokenizer, config.task)
    model.fit(
        x,
        y,
        values.batch_size,
        values.epochs,
        validation_data=(dev_x, dev_y),
        verbose="auto" if sys.stdout.isatty() else 2,
    )
    _, accuracy = model.evaluate(dev_x, dev_y, values.batch_size, verbose=0)
    if isinstance(encoder, AlbertEncoder):
        return model, accuracy
    return _with_own_encoder(model, config.model), accuracy


def _encoder(init: str) -> tf_keras.layers.Layer:
    if is_saved_model(init):
        import tensorflow_hub as hub

        return hub.KerasLayer(init, trainable=True, name="encoder")
    return load_encoder(init)


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


def save(model: SequenceClassifier, run: RunDir) -> None:
    """Writes the model's checkpoint into the run."""
    checkpoint = tf.train.Checkpoint(model=model)
    tf.train.CheckpointManager(checkpoint, run.checkpoints_path, max_to_keep=1).save()
    latest_checkpoint(run.path)


def majority_baseline(train: Examples, dev: Examples) -> float:
    """Dev accuracy of always answering the most frequent label of the training part."""
    (label, _), *_ = collections.Counter(train.labels).most_common(1)
    return sum(answer == label for answer in dev.labels) / len(dev.labels)


def fingerprint(train: Examples, dev: Examples) -> str:
    """16 hex digits that change with any text or label."""
    content: Any = [dataclasses.astuple(part) for part in (train, dev)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def tokenizer_from(init: str) -> str:
    """The tokenizer folder of a run, a converted folder or an exported encoder."""
    base = os.path.join(init, EXTRAS) if is_saved_model(init) else init
    return os.path.join(base, "tokenizer")


if __name__ == "__main__":
    cli.run(main, FinetuneOptions, __doc__)
