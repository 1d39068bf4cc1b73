"""Batches of records: order, pairs and masks are pure functions of (seed, epoch, record).

Batch s contains the records [s * B, (s + 1) * B) of the endless stream. So a position in the data
is just a step, and a restart seeks to it.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.runtime.errors import ConfigError, listed
from data.objectives.masking import MaskingConfig
from data.objectives.pair_objective import PairObjective
from data.pipeline.example_maker import ExampleMaker
from data.pipeline.mixture import Mixture
from data.pipeline.record_folder import Records
from data.records.manifest import COMPACT

Batch = dict[str, tf.Tensor]


def training_batches(
    records: Records | Mixture,
    objective: PairObjective,
    masking: MaskingConfig,
    global_batch_size: int,
    seed: int,
    start_step: int = 0,
    num_workers: int = 1,
    worker: int = 0,
    batch_size_per_replica: int | None = None,
    schedule_steps: int = 0,
) -> tf.data.Dataset:
    """Return an endless dataset of batches from step `start_step` on.

    With several workers, each one takes its own slice of every global batch, so that together they
    read the same records as a single worker. Shapes are static: the features are those of
    `ExampleMaker`, with `batch_size_per_replica` rows (by default, all rows of the worker).
    `masking` has no effect on records of the reference layout, which are already masked. Its rate
    changes over `schedule_steps`, which need not be given for a rate that does not change.

    Raises:
      ConfigError: the workers or the replicas cannot split a global batch evenly, or
        the records do not support the objective.
    """
    per_worker = global_batch_size // num_workers
    if global_batch_size % num_workers or per_worker % (batch_size_per_replica or per_worker):
        raise ConfigError(
            f"`loop.global_batch_size` must be a multiple of the {num_workers} workers times the "
            f"batch size per replica ({batch_size_per_replica}). Received: {global_batch_size}."
        )
    examples = _examples(records, objective, masking, seed)
    dataset = records.stream(objective, seed, start_step * global_batch_size)
    dataset = dataset.batch(global_batch_size, drop_remainder=True)
    # Slice while the records are still strings: parsing and masking cost more than reading.
    worker_rows = slice(worker * per_worker, (worker + 1) * per_worker)
    dataset = dataset.enumerate(start_step).map(
        lambda step, fields: (
            tf.fill([per_worker], masking.rate_at(step, schedule_steps)),
            *(field[worker_rows] for field in fields),
        )
    )
    dataset = dataset.rebatch(batch_size_per_replica or per_worker, drop_remainder=True)
    dataset = dataset.map(
        lambda rate, *fields: examples(*fields, rate=rate),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    # Otherwise several workers would prepare for partial batches, whose shapes are not static.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return dataset.apply(endless).prefetch(4)


def evaluation_batches(
    records: Records,
    objective: PairObjective,
    masking: MaskingConfig,
    batch_size: int,
    seed: int = 0,
) -> tf.data.Dataset:
    """Return a dataset of every record once, in the order of the files, with fixed masks.

    The last batch is padded with copies whose weights are 0.
    """
    examples = _examples(records, objective, masking, seed)
    dataset = records.in_order(objective, seed).batch(batch_size)
    dataset = dataset.map(lambda *fields: padded_batch(examples, batch_size, *fields))
    return dataset.prefetch(4)


def _examples(
    records: Records | Mixture, objective: PairObjective, masking: MaskingConfig, seed: int
) -> Callable[..., Batch]:
    """Return the function from serialized records, indices, epochs (and partners) to a batch."""
    parts = records.parts if isinstance(records, Mixture) else (records,)
    lengths = {part.manifest.seq_length for part in parts}
    if objective.has_partners and len(lengths) > 1:
        raise ConfigError(
            f"`objective.pair={objective.name}` needs folders of one sequence length, since a "
            "longer pair would tell its label. Received: lengths of "
            f"{listed([str(length) for length in sorted(lengths)])}. Mix folders of one length."
        )
    problems = []
    for part in parts:
        try:
            objective.check(part.manifest)
        except ConfigError as error:  # records without a pair have no weight among others
            problems.append(error)
    if problems and (len(problems) == len(parts) or records.manifest.layout != COMPACT):
        raise problems[0]
    if records.manifest.layout == COMPACT:
        return ExampleMaker(records.manifest, objective, masking, seed)
    static = parts[0].static()
    return lambda raw, index, epoch, rate=None: static.parse(raw, use_pairs=objective.is_trained)


@tf.autograph.experimental.do_not_convert
def padded_batch(examples: Callable[..., Batch], batch_size: int, *fields: tf.Tensor) -> Batch:
    """Apply `examples` to at most `batch_size` records, padded with copies of weight 0."""
    count = tf.shape(fields[0])[0]
    rows = tf.minimum(tf.range(batch_size), count - 1)
    batch = examples(*(tf.gather(field, rows) for field in fields))
    is_own = tf.cast(tf.range(batch_size) < count, tf.float32)
    batch["masked_lm_weights"] *= is_own[:, None]
    batch["pair_weight"] *= is_own
    return batch
