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
import os
from typing import Annotated, Any

from albert_tf.runtime import commands, devices, outputs, settings
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets import TASKS
from finetuning.datasets.task import Task, source_of
from finetuning.reporting import report
from finetuning.training.finetuner import Finetuner, TrainingSource
from finetuning.training.starting_point import StartingPoint, resolve


@dataclasses.dataclass(frozen=True)
class FinetuneOptions(commands.CommandOptions):
    """The command line of `finetuning.train`."""

    task: str = commands.option("the task: " + ", ".join(TASKS))
    run_dir: str = commands.option("the run's folder")
    data_dir: str | None = commands.option(
        "the task's files; with --tfds, where TFDS keeps them", None
    )
    tfds: bool = commands.option("read the task's prepared TFDS; nothing is downloaded", False)
    init: str | None = commands.option("run folder, converted folder or exported encoder", None)
    init_from_task: str | None = commands.option("a fine-tuned run, instead of --init", None)
    unfinished: bool = commands.option(
        "take the last checkpoint of a run that has not ended", False
    )
    tokenizer: str | None = commands.option("the vocabulary, where --init has none", None)
    recipe: str = commands.option("paper, or none: our own defaults", "paper")
    seeds: Annotated[int, POSITIVE] = commands.option("runs, with seed, seed + 1...", 1)
    device: str = commands.option("auto, cpu, gpu, tpu or multi_worker", "auto")
    tpu: str | None = commands.option("name, grpc address or local", None)
    cache_dir: str | None = commands.option("where features are kept for the next run", None)
    dry_run: bool = commands.option("print the resolved configuration and check everything", False)
    set: tuple[str, ...] = commands.option("key=value", ())


def main(options: FinetuneOptions) -> None:
    """Fine-tunes as `options` describe."""
    if options.task not in TASKS:
        raise InputError(f"--task: {settings.unknown_key(options.task, TASKS, 'task')}")
    if options.cache_dir:
        outputs.require_folder(options.cache_dir, "--cache_dir")
    task = TASKS[options.task]
    source = source_of(options.data_dir, options.tfds)
    recipe = recipe_of(task, options)
    strategy = devices.strategy(options.device, options.tpu)  # before anything is computed
    start = StartingPoint.of(
        options.init, options.init_from_task, options.tokenizer, options.unfinished
    )
    data = task.read(source)
    config = resolve(start, data, recipe, options.set, options.device)
    config.training.check_batch(strategy.num_replicas_in_sync)
    share = config.training.threshold_share
    cache = None if options.dry_run else options.cache_dir
    finetuner = Finetuner(options.task, task, data, start.tokenizer, strategy, cache, share)
    training_source = TrainingSource(os.path.abspath(start.path), start.model)
    if options.seeds == 1:
        finetuner.run(config, RunDir(options.run_dir), training_source, options.dry_run)
        return
    runs = [RunDir(os.path.join(options.run_dir, f"seed-{i}")) for i in range(options.seeds)]
    for number, run in enumerate(runs):
        seeded = dataclasses.replace(config, seed=config.seed + number)
        finetuner.run(seeded, run, training_source, options.dry_run)
    if not options.dry_run and devices.is_chief(strategy):
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


if __name__ == "__main__":
    commands.run(main, FinetuneOptions, __doc__)
