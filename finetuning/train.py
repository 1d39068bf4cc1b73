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
import time

from albert_tf import cli, settings
from albert_tf.checkpoints import EXTRAS, is_saved_model, load_config
from albert_tf.errors import ConfigError, InputError
from albert_tf.plots import plot_metrics
from albert_tf.runs import RunDir
from albert_tf.tasks.classifier import ClassifierTask
from albert_tf.tokenization import load_tokenizer
from finetuning.config import FinetuneConfig
from finetuning.fit import encoder_from, fine_tune
from finetuning.task import Examples
from finetuning.tasks import TASKS

PANELS = {"loss": ("loss/train", "loss/dev"), "accuracy": ("accuracy/train", "accuracy/dev")}
# The rest of `task` and all of `model` follow from the data and from --init.
CHANGEABLE = ("training.", "seed", "task.seq_length", "task.dropout")


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
        raise InputError(f"--task: {settings.unknown_key(options.task, TASKS, 'task')}")
    task, train, dev = TASKS[options.task].read(options.data_dir)
    config = resolve(options, task)
    run = RunDir(options.run_dir)
    origin = {"init": os.path.normpath(options.init), "data": fingerprint(train, dev)}
    run_config = settings.to_dict(config) | origin
    run.check(run_config)
    if options.dry_run:
        print(json.dumps(run_config, indent=1))
        return
    if run.is_complete:
        print(f"{run.path} is already complete: {json.dumps(run.result())}")
        return
    tokenizer, encoder = load_tokenizer(options.init), encoder_from(options.init)
    if run.metrics():
        print(f"{run.path} was interrupted: fine-tuning begins again from {options.init}.")
    run.begin(run_config, tokenizer)
    start = time.monotonic()
    accuracy = fine_tune(config, encoder, tokenizer, train, dev, run)
    plot_metrics(run, PANELS, "epoch")
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
    model = load_config(folder)
    # Shorter where the encoder cannot take the task's default.
    task = dataclasses.replace(task, seq_length=min(task.seq_length, model.max_positions))
    config = settings.override(FinetuneConfig(model, task), options.set)
    for key in (assignment.partition("=")[0] for assignment in options.set):
        if not key.startswith(CHANGEABLE):
            raise ConfigError(
                f"`{key}` follows from the data or from --init and cannot be set. "
                f"What can: {', '.join(CHANGEABLE)}."
            )
    if config.task.seq_length > model.max_positions:
        raise ConfigError(
            "`task.seq_length` must not exceed the encoder's `max_positions`. "
            f"Received: {config.task.seq_length}, {model.max_positions}."
        )
    return config


def majority_baseline(train: Examples, dev: Examples) -> float:
    """Dev accuracy of always answering the most frequent label of the training part."""
    (label, _), *_ = collections.Counter(train.labels).most_common(1)
    return sum(answer == label for answer in dev.labels) / len(dev.labels)


def fingerprint(train: Examples, dev: Examples) -> str:
    """16 hex digits that change with any text or label."""
    content = [dataclasses.astuple(part) for part in (train, dev)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


if __name__ == "__main__":
    cli.run(main, FinetuneOptions, __doc__)
