"""Length buckets inside a graph, so that short rows are not padded to the longest."""

from collections.abc import Callable, Mapping

import tensorflow as tf

# 8, 9, ... 16, 18, ... 32, 36, ... 512: eight for each doubling; then multiples of the last.
WIDTHS = (*(n * 2**k for k in range(6) for n in range(8, 16)), 512)
CHUNK = 8192  # positions computed at once, which bounds the memory for a batch of any size

Rows = Mapping[str, tf.Tensor]


def run_in_buckets(
    lengths: tf.Tensor,
    run: Callable[[tf.Tensor, tf.Tensor], Rows],
    outputs: Rows,
    max_width: int,
    chunk: int = CHUNK,
) -> dict[str, tf.Tensor]:
    """Run each row in a batch of rows padded to the same width, one of `widths_up_to`.

    A row's width depends only on its own length, so its result does not depend on other rows.

    Args:
      lengths: int32 [N], the number of positions that each row needs.
      run: (rows int32 [n], width int32 []) -> name -> [n, ...], the outputs for these rows padded
        to this width.
      outputs: name -> [N, ...], the tensors to fill with `run`'s outputs, such as zeros.
      max_width: the largest width of a row.
      chunk: the largest number of rows times width computed at once, unless one row exceeds it.

    Returns:
      `outputs` with every row filled, in the order of `lengths`.
    """
    order = tf.argsort(lengths, stable=True)
    ascending, count = tf.gather(lengths, order), tf.size(lengths)

    def one_chunk(begin: tf.Tensor, filled: Rows) -> tuple[tf.Tensor, Rows]:
        width = bucket_width(ascending[begin], max_width)
        bucket_end = tf.searchsorted(ascending, [width], side="right")[0]  # rows up to here fit
        bucket_end = tf.where(width < max_width, bucket_end, count)
        end = tf.minimum(bucket_end, begin + tf.maximum(1, chunk // width))
        rows = order[begin:end]
        new = run(rows, width)
        return end, {
            name: tf.tensor_scatter_nd_update(filled[name], rows[:, tf.newaxis], new[name])
            for name in filled
        }

    shapes = tf.TensorShape([]), {name: value.shape for name, value in outputs.items()}
    _, filled = tf.while_loop(
        lambda begin, _: begin < count,
        one_chunk,
        (tf.constant(0), dict(outputs)),
        shape_invariants=shapes,
        parallel_iterations=1,
    )
    return filled


def widths_up_to(max_width: int) -> list[int]:
    """Return all values of `bucket_width`, in ascending order."""
    multiples = range(2 * WIDTHS[-1], max_width, WIDTHS[-1])
    return [*(width for width in (*WIDTHS, *multiples) if width < max_width), max_width]


def bucket_width(length: tf.Tensor, max_width: int) -> tf.Tensor:
    """Return the smallest width for `length` positions, int32 []; at most `max_width`."""
    widths = tf.constant(WIDTHS)
    bucket = tf.searchsorted(widths, tf.reshape(length, [1]))[0]
    rounded_up = -(-length // WIDTHS[-1]) * WIDTHS[-1]
    width = tf.where(
        bucket < len(WIDTHS), tf.gather(widths, tf.minimum(bucket, len(WIDTHS) - 1)), rounded_up
    )
    return tf.minimum(width, max_width)
