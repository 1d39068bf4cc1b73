r"""Fine-tune an encoder on labeled data with plain tf_keras `compile` and `fit`.

--init takes a pretraining run, a converted checkpoint, an exported encoder or the name of an
included model. --init_from_task takes a fine-tuned run, as the paper took its MNLI model for RTE,
STS-B and MRPC.

    python -m finetuning.train --task=cola --data_dir=glue/CoLA --init=runs/base \
        --run_dir=runs/base-cola
    python -m finetuning.train --task=text_classification --data_dir=reviews --init=runs/first \
        --run_dir=runs/reviews --set training.epochs=5

A task of GLUE, SQuAD or RACE uses the paper's settings (Table 14: learning rate, batch size, steps,
warm-up, dropout, length). --set overrides each of them, and --recipe=none drops them all. The dev
examples are evaluated during training, and the best weights are kept. An interrupted run resumes
from its last evaluation. --seeds=5 creates RUN_DIR/seed-0 to seed-4 and writes median and spread to
RUN_DIR/seeds.json. With --runtime=pjrt, JAX's client computes the steps, as on GPUs; evaluations
stay on the CPU.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Annotated, Any

import tensorflow as tf

from albert_tf.runtime import commands, devices
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from albert_tf.training.jax_devices import JaxDevices
from albert_tf.training.progress import printing_if
from finetuning.datasets import DATASETS, TRAINED, trained_dataset
from finetuning.datasets.dataset import Dataset, Reading, source_of
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import report
from finetuning.reporting.intact_results import read_result
from finetuning.training.config import RECIPES
from finetuning.training.finetuner import Finetuner, TrainingSource
from finetuning.training.fit import Fit, keras_fit
from finetuning.training.jax_fit import JaxFit
from finetuning.training.keys import require_settings
from finetuning.training.starting_point import StartingPoint, resolve


def _only_for(name: str) -> commands.Conditions:
    """Return where an option about files applies: to the datasets that have it."""
    return {"task": lambda: [task for task, data in TRAINED.items() if name in data.options]}


def _with_few_labels() -> list[str]:
    return [task for task, data in TRAINED.items() if FINETUNING[data.kind].few_labels]


@dataclasses.dataclass(frozen=True)
class FinetuneOptions(commands.CommandOptions):
    """The command line of `finetuning.train`."""

    task: str = commands.option(
        "the task: " + ", ".join(TRAINED), check=lambda name: trained_dataset(name, "--task")
    )
    run_dir: str = commands.option("the run's folder", path=True)
    data_dir: str | None = commands.option(
        "the folder of the task's files; with --tfds, of TFDS's datasets", None, path=True
    )
    tfds: bool = commands.option("read the dataset prepared by TFDS; nothing is downloaded", False)
    text_column: tuple[str, ...] = commands.option(
        "the column of the text in your own table; given twice for pairs; in CoNLL columns, its "
        "number from 0",
        (),
        only_for=_only_for("text_column"),
    )
    label_column: tuple[str, ...] = commands.option(
        "the column of the label in your own table, `label` by default; repeated, the columns of 0 "
        "and 1 of the labels; in CoNLL columns, its number from 0 (the last one if not given)",
        (),
        only_for=_only_for("label_column"),
        repeated_only_for=_only_for("label_columns"),
    )
    label_separator: str = commands.option(
        "the separator of the labels in a cell of your own table",
        ",",
        only_for=_only_for("label_separator"),
    )
    column_separator: str = commands.option(
        "the separator of CoNLL columns, such as '|' or '\\t'; by default tabs, or else spaces",
        "",
        only_for=_only_for("column_separator"),
    )
    offsets: str = commands.option(
        "the unit of the offsets of spans: characters, or utf16, as JavaScript counts",
        "characters",
        only_for=_only_for("offsets"),
    )
    dev_fraction: float = commands.option(
        "the share of the training examples to use as the dev part, if there is none", 0.0
    )
    max_train_examples: int | None = commands.option(
        "the maximum number of training examples", None
    )
    init: str | None = commands.option(
        "a run, a converted folder, an exported encoder or the name of an included model; "
        "random:PATH for the same encoder, randomly initialized",
        None,
        path=True,
    )
    init_from_task: str | None = commands.option(
        "a fine-tuned run, instead of --init", None, path=True
    )
    unfinished: bool = commands.option(
        "accept a run that has not ended and use its last checkpoint", False
    )
    tokenizer: str | None = commands.option("the vocabulary, if --init has none", None, path=True)
    recipe: Annotated[str, one_of(*RECIPES)] = commands.option(
        "paper; few_labels for a classifier with a handful of texts for each label, which starts "
        "best from an embedder; or none for the project's defaults",
        "paper",
        values_only_for={"few_labels": {"task": _with_few_labels}},
    )
    seeds: Annotated[int, POSITIVE] = commands.option(
        "the number of runs; their seeds are `seed`, `seed` + 1, ...", 1
    )
    device: str = commands.option(
        "auto, cpu, gpu, tpu or multi_worker",
        "auto",
        values_only_for={"multi_worker": {"runtime": ("tensorflow",)}},
    )
    tpu: str | None = commands.option(
        "the TPU: its name, its grpc:// address, or local",
        None,
        only_for={"runtime": ("tensorflow",)},
    )
    runtime: Annotated[str, one_of("tensorflow", "pjrt")] = commands.option(
        "what computes the steps: tensorflow, or pjrt, which is JAX's client, on one device",
        "tensorflow",
    )
    cache_dir: str | None = commands.option(
        "a folder that caches features for later runs", None, path=True
    )
    dry_run: bool = commands.option(
        "read all data; print the numbers of examples and steps, and the resolved configuration",
        False,
    )
    set: tuple[str, ...] = commands.option(
        "key=value of the configuration, such as training.epochs=10", ()
    )


def main(options: FinetuneOptions, open_run: Callable[[str], RunDir] = RunDir) -> None:
    """Fine-tune as `options` describe; `open_run` makes the folder of each run."""
    dataset = DATASETS[options.task]
    if options.cache_dir:
        outputs.require_folder(options.cache_dir, "--cache_dir")
    source = source_of(dataset, options.data_dir, options.tfds, _reading(options))
    require_settings(KINDS[dataset.kind].settings, options.set)
    recipe = recipe_of(dataset, options)
    assignments = list(options.set)
    fit, strategy = set_up_devices(options, assignments)
    start = StartingPoint.of(
        options.init, options.init_from_task, options.tokenizer, options.unfinished
    )
    data = dataset.read(source)
    config = resolve(start, data, recipe, assignments, options.device)
    config.training.check_batch(strategy.num_replicas_in_sync)
    share = config.training.threshold_share
    cache = None if options.dry_run else options.cache_dir
    finetuner = Finetuner(
        *(options.task, dataset, data, source, start.tokenizer, strategy, cache, share),
        fit=fit,
        runtime=options.runtime,
    )
    extra = {"init_from_task": True} if options.init_from_task else {}
    training_source = TrainingSource(
        start.origin, start.model, start.fingerprint, extra_config=extra
    )
    several = [os.path.join(options.run_dir, f"seed-{i}") for i in range(options.seeds)]
    runs = [open_run(path) for path in (several if options.seeds > 1 else [options.run_dir])]
    configs = [dataclasses.replace(config, seed=config.seed + i) for i in range(len(runs))]
    with printing_if(devices.is_chief(strategy)):
        for seeded, run in zip(configs, runs, strict=True):
            finetuner.run(seeded, run, training_source, options.dry_run)
    if len(runs) > 1 and not options.dry_run and devices.is_chief(strategy):
        print(report.summarize(options.run_dir, [read_result(run) for run in runs]))


def set_up_devices(
    options: FinetuneOptions, assignments: list[str]
) -> tuple[Fit, tf.distribute.Strategy]:
    """Return what computes the steps, and where the variables are; must precede all computation.

    The precision of JAX's devices is appended to the assignments if they leave it open.
    """
    if options.runtime == "tensorflow":
        return keras_fit, devices.strategy(options.device, options.tpu)
    found = JaxDevices(options.device)
    if len(found.devices) > 1:
        print(f"note: fine-tuning uses one of {len(found.devices)} devices", flush=True)
    given = {key.strip(): value for key, _, value in (each.partition("=") for each in assignments)}
    if given.get("training.precision", "auto").strip() == "auto":
        assignments.append(f"training.precision={found.precision}")
    return JaxFit(found), found.strategy


def _reading(options: FinetuneOptions) -> Reading:
    labels = options.label_column
    is_single = len(labels) == 1
    return Reading(
        options.text_column,
        labels[0] if is_single else "label",
        label_columns=() if is_single else labels,
        dev_fraction=options.dev_fraction,
        max_train_examples=options.max_train_examples,
        label_separator=options.label_separator,
        column_separator=options.column_separator,
        offsets=options.offsets,
    )


def recipe_of(dataset: Dataset, options: FinetuneOptions) -> dict[str, Any]:
    """Return the settings of --recipe, without its steps if the user sets the epochs.

    The warm-up is a fraction of the steps, so that it fits any number of them.
    """
    recipes = {"paper": dataset.recipe, "few_labels": FINETUNING[dataset.kind].few_labels}
    recipe = dict(recipes.get(options.recipe, {}))
    if "training.warmup_steps" in recipe:
        warmup = recipe.pop("training.warmup_steps")
        recipe["training.warmup_fraction"] = warmup / recipe["training.steps"]
    if "training.epochs" in (assignment.partition("=")[0].strip() for assignment in options.set):
        recipe.pop("training.steps", None)
    return recipe


if __name__ == "__main__":
    commands.run(main, FinetuneOptions, __doc__)
