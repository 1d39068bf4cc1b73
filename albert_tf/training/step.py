"""What the training steps share: a batch in parts, and the key of a step's dropout."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.models.layers import common


def split_batch(batch: Any, parts: int) -> Any:
    """A structure of [B, ...] -> the same of [parts, B / parts, ...]; `parts` must divide B."""

    def split(values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [parts, -1, *common.shape_of(values)[1:]])

    return tf.nest.map_structure(split, batch)


def sum_over_parts(compute: Callable[[tf.Tensor], Any], first: int, parts: int, start: Any) -> Any:
    """start + compute(first) + ... + compute(parts - 1), a structure, one part after the other."""

    def add(part: tf.Tensor, sums: Any) -> tuple[tf.Tensor, Any]:
        return part + 1, tf.nest.map_structure(tf.add, sums, compute(part))

    return tf.while_loop(
        lambda part, _: part < parts, add, (tf.constant(first), start), parallel_iterations=1
    )[1]


def num_parts(rows: int, at_most: int) -> int:
    """The largest number of equal parts of so many rows."""
    return next(number for number in range(max(1, at_most), 0, -1) if rows % number == 0)


def parallel_parts(compute: Callable[[tf.Tensor], Any], parts: int, like: Any) -> list:
    """[compute(0), ..., compute(parts - 1)], as many at once as there are threads.

    Args:
      like: a structure of the `tf.TensorSpec`s of what `compute` returns.
    """

    def run(part: tf.Tensor, results: list[tf.TensorArray]) -> tuple:
        values = tf.nest.flatten(compute(part))
        return part + 1, [a.write(part, v) for a, v in zip(results, values, strict=True)]

    results = [
        tf.TensorArray(one.dtype, parts, element_shape=one.shape) for one in tf.nest.flatten(like)
    ]
    _, results = tf.while_loop(
        lambda part, _: part < parts, run, (tf.constant(0), results), parallel_iterations=parts
    )
    return [
        tf.nest.pack_sequence_as(like, [one.read(part) for one in results]) for part in range(parts)
    ]


def step_dropout_key(seed: int, step: tf.Tensor) -> common.DropoutKey:
    """int32 [2], a function of (seed, step, replica)."""
    key = tf.stack([tf.constant(seed, tf.int32), tf.cast(step, tf.int32)])
    replica = tf.distribute.get_replica_context()
    return common.fold_in(key, tf.cast(replica.replica_id_in_sync_group, tf.int32))
