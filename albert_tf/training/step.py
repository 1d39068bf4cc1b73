"""Common functions of the training steps: parts of a batch, and the dropout key of a step."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.models.layers import common


def split_batch(batch: Any, parts: int) -> Any:
    """Reshape a structure of [B, ...] to [parts, B / parts, ...]; `parts` must divide B.

    Raises:
      InvalidArgumentError: it does not.
    """
    message = (
        f"`accumulation_steps`, {parts}, must divide the batch of a replica. Drop the last, "
        "smaller batch: batch(size, drop_remainder=True)."
    )

    def split(values: tf.Tensor) -> tf.Tensor:
        size, *rest = common.shape_of(values)
        check = tf.debugging.assert_equal(size % parts, 0, message)
        with tf.control_dependencies([check]):
            return tf.reshape(values, [parts, -1, *rest])

    return tf.nest.map_structure(split, batch)


def accumulated(
    compute: Callable[[Any, common.DropoutKey], Any],
    batch: Any,
    key: common.DropoutKey,
    parts: int,
    zeros: Any = None,
) -> Any:
    """Return the sum of compute(part of the batch, its dropout key), one part after another.

    Args:
      compute: returns a structure of tensors.
      batch: a structure of [B, ...]; `parts` must divide B.
      key: the dropout key of the step, into which the number of each part is folded.
      parts: with one, the result is compute(batch, key).
      zeros: the sum of no parts. None: unknown, so the first part is computed outside the loop.
    """
    if parts == 1:
        return compute(batch, key)
    of_part = _of_part(compute, batch, key, parts)

    def add(part: tf.Tensor, sums: Any) -> tuple[tf.Tensor, Any]:
        return part + 1, tf.nest.map_structure(tf.add, sums, of_part(part))

    first, start = (0, zeros) if zeros is not None else (1, of_part(0))
    return tf.while_loop(
        lambda part, _: part < parts, add, (tf.constant(first), start), parallel_iterations=1
    )[1]


def in_parts(
    compute: Callable[[Any, common.DropoutKey], tf.Tensor],
    batch: Any,
    key: common.DropoutKey,
    parts: int,
) -> tf.Tensor:
    """Return compute(part of the batch, its dropout key) of all parts, one after another, [B, ...].

    The arguments are those of `accumulated`; each part has the same key here and there.
    """
    of_part = _of_part(compute, batch, key, parts)
    first = of_part(0)  # whose shape and dtype are those of all
    results = tf.TensorArray(first.dtype, parts, element_shape=first.shape).write(0, first)
    _, results = tf.while_loop(
        lambda part, _: part < parts,
        lambda part, results: (part + 1, results.write(part, of_part(part))),
        (tf.constant(1), results),
        parallel_iterations=1,
    )
    return results.concat()


def _of_part(
    compute: Callable[[Any, common.DropoutKey], Any], batch: Any, key: common.DropoutKey, parts: int
) -> Callable[[tf.Tensor | int], Any]:
    """Return a function from the number of a part to the result of `compute` for it."""
    split = split_batch(batch, parts)

    def of_part(part: tf.Tensor | int) -> Any:
        rows = tf.nest.map_structure(lambda values: values[part], split)
        return compute(rows, common.fold_in(key, part))

    return of_part


def num_parts(rows: int, at_most: int) -> int:
    """Return the largest number of equal parts of `rows` rows that is at most `at_most`."""
    return next(number for number in range(max(1, at_most), 0, -1) if rows % number == 0)


def parallel_parts(compute: Callable[[tf.Tensor], Any], parts: int, like: Any) -> list:
    """Return [compute(0), ..., compute(parts - 1)], with as many in parallel as there are threads.

    `like` is a structure of the `tf.TensorSpec`s of the result of `compute`.
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


def step_dropout_key(seed: int, step: tf.Tensor, replica: tf.Tensor) -> common.DropoutKey:
    """Return the dropout key of (seed, step, replica), int32 [2]."""
    key = tf.stack([tf.constant(seed, tf.int32), tf.cast(step, tf.int32)])
    return common.fold_in(key, tf.cast(replica, tf.int32))
