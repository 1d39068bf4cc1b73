"""Rows of unlike lengths through a model, inside a graph: no short row pays for a long one."""

from collections.abc import Callable, Mapping

import tensorflow as tf

WIDTHS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # beyond: multiples of the last
CHUNK = 8192  # positions that are computed at once: bounds the memory of a batch of any size

Rows = Mapping[str, tf.Tensor]


def in_buckets(
    lengths: tf.Tensor,
    run: Callable[[tf.Tensor, tf.Tensor], Rows],
    outputs: Rows,
    longest: int,
    chunk: int = CHUNK,
) -> dict[str, tf.Tensor]:
    """Computes each row beside rows of its own width: the widths are `WIDTHS`.

    A row's width depends on its own length alone, so that its answer does not depend on the others.

    Args:
      lengths: int32 [N], how many positions each row needs.
      run: (rows int32 [n], width int32 []) -> name -> [n, ...], the outputs of those rows, padded
        to that width.
      outputs: name -> [N, ...], what `run`'s outputs are written into: zeros, say.
      longest: no row is wider.
      chunk: rows times width that are computed at once, or one row.

    Returns:
      `outputs` with every row filled, in the order of `lengths`.
    """
    order = tf.argsort(lengths, stable=True)
    ascending, count = tf.gather(lengths, order), tf.size(lengths)

    def one_chunk(begin: tf.Tensor, done: Rows) -> tuple[tf.Tensor, Rows]:
        width = width_of(ascending[begin], longest)
        as_wide = tf.searchsorted(ascending, [width], side="right")[0]  # these fit
        as_wide = tf.where(width < longest, as_wide, count)
        end = tf.minimum(as_wide, begin + tf.maximum(1, chunk // width))
        rows = order[begin:end]
        new = run(rows, width)
        return end, {
            name: tf.tensor_scatter_nd_update(done[name], rows[:, tf.newaxis], new[name])
            for name in done
        }

    shapes = tf.TensorShape([]), {name: value.shape for name, value in outputs.items()}
    _, done = tf.while_loop(
        lambda begin, _: begin < count,
        one_chunk,
        (tf.constant(0), dict(outputs)),
        shape_invariants=shapes,
        parallel_iterations=1,
    )
    return done


def width_of(length: tf.Tensor, longest: int) -> tf.Tensor:
    """The smallest width that holds `length` positions, int32 []; at most `longest`."""
    widths = tf.constant(WIDTHS)
    place = tf.searchsorted(widths, tf.reshape(length, [1]))[0]
    beyond = -(-length // WIDTHS[-1]) * WIDTHS[-1]
    width = tf.where(
        place < len(WIDTHS), tf.gather(widths, tf.minimum(place, len(WIDTHS) - 1)), beyond
    )
    return tf.minimum(width, longest)
