"""Time fine-tuning steps on batches padded to their longest example or to the full length.

    python -m benchmarks.padding --task=sst-2 --data_dir=glue --init=runs/base

The output is one JSON line: `step_ms` of both, medians over rounds that take turns; `speedup`; and
`largest_difference` of a dev logit between the two, which is only rounding.
"""

import dataclasses
import json
import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.optimization import AdamW
from albert_tf.runtime import commands, devices
from albert_tf.tasks.kinds import KINDS
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.training.batches import training_batches
from finetuning.training.starting_point import StartingPoint, resolve

ROUNDS = 5
DEV_EXAMPLES = 256


@dataclasses.dataclass(frozen=True)
class PaddingOptions:
    """The command line of `benchmarks.padding`."""

    task: str = commands.option("the task: " + ", ".join(DATASETS))
    data_dir: str = commands.option("the folder of its files", path=True)
    init: str = commands.option("a run folder or a converted folder", path=True)
    steps: int = commands.option("steps per round", 20)
    device: str = commands.option("as in finetuning.train", "auto")
    dry_run: bool = commands.option("check the options", False)
    set: tuple[str, ...] = commands.option("key=value, as for finetuning.train", ())


def main(options: PaddingOptions) -> None:
    """Measure and print the line."""
    start = StartingPoint.of(options.init, None, None, unfinished=True)
    data = DATASETS[options.task].read(Source(options.data_dir))
    config = resolve(start, data, {}, options.set, options.device)
    if options.dry_run:
        print(config)
        return
    kind, batch_size = KINDS[config.task.kind], config.training.batch_size
    train = kind.featurize(data.train, start.tokenizer, config.task)
    with devices.strategy(options.device).scope():
        model = start.model(config)
        model.compile(AdamW(1e-5), model.training_losses())
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS + 1):
        for full in took:
            first = number * options.steps
            batches = training_batches(
                train, batch_size, 0, first, first + options.steps, full
            ).cache()
            for _ in batches:
                pass  # fill the cache, so that the pipeline is not measured
            begin = time.perf_counter()
            model.fit(batches, verbose=0)
            if number:  # the first round traces
                took[full].append((time.perf_counter() - begin) / options.steps)
    step_ms = {full: 1000 * statistics.median(values) for full, values in took.items()}
    (examples, *_) = data.dev.values()
    dev = kind.featurize(examples[:DEV_EXAMPLES], start.tokenizer, config.task)
    units = tf.range(len(dev))
    outputs = [
        _flat(model(dev.batch(units, length)[0], training=False))
        for length in (None, config.task.seq_length)
    ]
    print(
        json.dumps(
            {
                "benchmark": "padding",
                "task": options.task,
                "seq_length": config.task.seq_length,
                "mean_length": round(float(train.unit_lengths.mean()), 1),
                "batch_size": batch_size,
                "step_ms_full": round(step_ms[True], 1),
                "step_ms_longest": round(step_ms[False], 1),
                "speedup": round(step_ms[True] / step_ms[False], 2),
                "largest_difference": float(np.abs(outputs[0] - outputs[1]).max()),
            }
        )
    )


def _flat(outputs: Any) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in tf.nest.flatten(outputs)])


if __name__ == "__main__":
    commands.run(main, PaddingOptions, __doc__)
