"""Fine-tunes an encoder on labelled data, with plain tf_keras `compile` and `fit`.

--init takes a pretraining run, a converted checkpoint, or an exported encoder; --init_from_task a
fine-tuned run, as the paper took MNLI's for RTE, STS-B and MRPC.

    python -m finetuning.train --task=cola --data_dir=glue/CoLA --init=runs/base \\
        --run_dir=runs/base-cola
    python -m finetuning.train --task=text_classification --data_dir=reviews --init=runs/first \\
        --run_dir=runs/reviews --set training.epochs=5

A named task has the paper's settings (Table 14: learning rate, batch, steps, warm-up, dropout,
length), each of which --set overrides; --recipe=none leaves them out. The dev examples are read on
the way, and the best weights are kept. An interrupted run goes on from its last evaluation.
--seeds=5 makes RUN_DIR/seed-0 to seed-4, with median and spread in RUN_DIR/seeds.json.
"""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf import cli, hardware, outputs, settings
from albert_tf.errors import InputError
from albert_tf.plots import plot_metrics
from albert_tf.runs import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.task_model import TaskModel
from finetuning import card, report
from finetuning.config import FinetuneConfig, Plan, TrainingConfig
from finetuning.feature_cache import features_of
from finetuning.fit import Scores, fine_tune
from finetuning.start import Start, resolve
from finetuning.task import Data, Task, source_of
from finetuning.tasks import TASKS
from finetuning.tasks.squad import hold_out


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """The command line of `finetuning.train`."""

    task: str = cli.option("the task: " + ", ".join(TASKS))
    run_dir: str = cli.option("the run's folder")
    data_dir: str | None = cli.option("the task's files; with --tfds, where TFDS keeps them", None)
    tfds: bool = cli.option("read the task's prepared TFDS; nothing is downloaded", False)
    init: str | None = cli.option("run folder, converted folder or exported encoder", None)
    init_from_task: str | None = cli.option("a fine-tuned run, instead of --init", None)
    tokenizer: str | None = cli.option("the vocabulary, where --init has none", None)
    recipe: str = cli.option("paper, or none: our own defaults", "paper")
    seeds: int = cli.option("runs, with seed, seed + 1...", 1)
    device: str = cli.option("auto, cpu, gpu, tpu or multi_worker", "auto")
    tpu: str | None = cli.option("name, grpc address or local", None)
    cache_dir: str | None = cli.option("where features are kept for the next run", None)
    dry_run: bool = cli.option("print the resolved configuration and check everything", False)
    set: tuple[str, ...] = cli.option("key=value", ())


def main(options: FinetuneOptions) -> None:
    """Fine-tunes as `options` describe."""
    if options.task not in TASKS:
        raise InputError(f"--task: {settings.unknown_key(options.task, TASKS, 'task')}")
    if options.seeds < 1:
        raise InputError(f"--seeds must be positive. Received: {options.seeds}.")
    task = TASKS[options.task]
    source = source_of(options.data_dir, options.tfds)
    recipe = recipe_of(task, options)
    strategy = hardware.strategy(options.device, options.tpu)  # before anything is computed
    start = Start.of(options.init, options.init_from_task, options.tokenizer)
    data = task.read(source)
    config = resolve(start, data, recipe, options.set, options.device)
    config.training.check_batch(strategy.num_replicas_in_sync)
    work = _Work(options, task, data, start, strategy, config.training.threshold_share)
    if options.seeds == 1:
        work.run(config, RunDir(options.run_dir))
        return
    runs = [RunDir(os.path.join(options.run_dir, f"seed-{i}")) for i in range(options.seeds)]
    for number, run in enumerate(runs):
        work.run(dataclasses.replace(config, seed=config.seed + number), run)
    if not options.dry_run and hardware.is_chief(strategy):
        print(report.summarize(options.run_dir, [run.result() for run in runs]))


def recipe_of(task: Task, options: FinetuneOptions) -> dict[str, Any]:
    """The settings that --recipe names; its steps give way to the user's epochs.

    The warm-up keeps its share of the steps, however many there are.
    """
    if options.recipe not in ("paper", "none"):
        raise InputError(f"--recipe must be paper or none. Received: {options.recipe!r}.")
    recipe = dict(task.recipe) if options.recipe == "paper" else {}
    if "training.warmup_steps" in recipe:
        warmup = recipe.pop("training.warmup_steps")
        recipe["training.warmup_fraction"] = warmup / recipe["training.steps"]
    if any(assignment.startswith("training.epochs=") for assignment in options.set):
        recipe.pop("training.steps", None)
    return recipe


class _Work:
    """What the runs of one command share: the data and their features."""

    def __init__(
        self,
        options: FinetuneOptions,
        task: Task,
        data: Data,
        start: Start,
        strategy: tf.distribute.Strategy,
        threshold_share: float,
    ) -> None:
        self.fingerprint = report.fingerprint(data)
        self.held_out: Sequence[Any] = ()
        if threshold_share:
            train, self.held_out = hold_out(data.train, threshold_share)
            data = dataclasses.replace(data, train=train)
        self.options, self.task, self.data = options, task, data
        self.start, self.strategy = start, strategy
        self._features: dict[str, Features] = {}

    def run(self, config: FinetuneConfig, run: RunDir) -> None:
        """One run, from wherever it is to its result."""
        run_config = settings.to_dict(config) | {
            "name": self.options.task,
            "init": os.path.normpath(self.start.path),
            "data": self.fingerprint,
        }
        if self.held_out and os.path.isfile(run.config_path):  # a complete run has chosen it
            run_config["task"]["null_threshold"] = run.config()["task"]["null_threshold"]
        run.check(run_config)
        if self.options.dry_run:
            print(json.dumps(run_config, indent=1))
            return
        if run.is_complete:
            print(f"{run.path} is already complete: {json.dumps(run.result())}")
            return
        is_chief = hardware.is_chief(self.strategy)
        if is_chief:
            run.begin(run_config, self.start.tokenizer)
        begin = time.monotonic()
        train = self.features("train", self.data.train, config.task)
        if lost := getattr(train, "lost", ()):
            print(
                f"{len(lost):,} answers lie in no window and are trained on as not there (the "
                f"first: {self.data.train[lost[0]].id!r})"
            )
        plan = Plan.of(config.training, len(train))
        print(
            f"{config.model.param_count():,} parameters, {len(self.data.train):,} examples, "
            f"{plan.steps:,} steps of {config.training.batch_size}, "
            f"{self.strategy.num_replicas_in_sync} replica(s)",
            flush=True,
        )
        (first, examples), *_ = self.data.dev.items()
        with hardware.precision_policy(config.training.precision):
            model = fine_tune(
                config,
                lambda: self.start.model(config),
                train,
                lambda model: self.scores(model, first, examples, config.training)[0],
                self.task.metrics[0],
                run,
                self.strategy,
            )
            if self.held_out:
                self._choose_threshold(model, config.training)
            parts = {  # by all workers: they compute together
                name: self.scores(model, name, examples, config.training)
                for name, examples in self.data.dev.items()
            }
        if is_chief:
            if self.held_out:
                run_config["task"] = settings.to_dict(model.task)
                outputs.write_json(run.config_path, run_config)
            self._finish(parts, run, time.monotonic() - begin)

    def features(self, name: str, examples: Sequence[Any], task: Any) -> Features:
        """Those of a part, made once."""
        if name not in self._features:
            self._features[name] = features_of(
                examples, self.start.tokenizer, task, self.options.cache_dir
            )
        return self._features[name]

    def scores(
        self, model: TaskModel, name: str, examples: Sequence[Any], values: TrainingConfig
    ) -> tuple[Scores, list[dict[str, Any]]]:
        """The task's metrics on a dev set, and the predictions."""
        features = self.features(f"dev {name}", examples, model.task)
        said = predict(model, features, values.batch_size // values.accumulation_steps)
        predictions = KINDS[model.task.kind].decode(said, features, examples, model.task)
        return self.task.score(predictions, examples), predictions

    def _choose_threshold(self, model: TaskModel, values: TrainingConfig) -> None:
        """The best `task.null_threshold` for the training questions that were left out."""
        scores, _ = self.scores(model, "left out of training", self.held_out, values)
        threshold = scores["best_threshold"]
        model.task = dataclasses.replace(model.task, null_threshold=threshold)
        print(
            f"null threshold {threshold:.4f}, the best for {len(self.held_out):,} training "
            "questions that were left out"
        )

    def _finish(
        self, parts: dict[str, tuple[Scores, list[dict[str, Any]]]], run: RunDir, seconds: float
    ) -> None:
        """Leaves scores, predictions, plots and card of the best weights."""
        result = report.result_of(self.task, self.data, parts, run.metrics(), seconds)
        for name, (_, predictions) in parts.items():
            report.write_predictions(run.predictions_path(name), predictions, self.data.dev[name])
        panels = {"loss": ("loss/train",), "dev": tuple(f"dev/{m}" for m in self.task.metrics)}
        plot_metrics(run, panels, "step")
        card.write(run, self.data, result, next(iter(parts.values()))[1])
        run.finish(result)
        shutil.rmtree(run.training_path, ignore_errors=True)
        print(f"{run.path}: {report.line(result)}")


if __name__ == "__main__":
    cli.run(main, FinetuneOptions, __doc__)
