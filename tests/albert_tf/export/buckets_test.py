"""Tests that rows are computed beside rows of their own width, in bounded chunks, in order."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.graph.buckets import WIDTHS, bucket_width, run_in_buckets, widths_up_to

SEEN = tf.Variable(tf.zeros([0, 2], tf.int32), shape=[None, 2], trainable=False)  # rows, width


@tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
def tripled(lengths):
    """Each row's three times its length and its width; notes the chunks in SEEN."""

    def run(rows, width):
        SEEN.assign(tf.concat([SEEN, [[tf.size(rows), width]]], 0))
        own = tf.gather(lengths, rows)
        return {"tripled": 3 * own, "width": tf.fill([tf.size(rows)], width)}

    zeros = tf.zeros_like(lengths)
    return run_in_buckets(
        lengths, run, {"tripled": zeros, "width": zeros}, max_width=700, chunk=512
    )


@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_every_row_is_computed_at_its_own_width(count):
    lengths = np.random.default_rng(count).integers(1, 701, count).astype(np.int32)
    SEEN.assign(tf.zeros([0, 2], tf.int32))
    outputs = tripled(lengths)
    np.testing.assert_array_equal(outputs["tripled"], 3 * lengths)
    wanted = [min([w for w in (*WIDTHS, 700) if w >= n]) for n in lengths]
    np.testing.assert_array_equal(outputs["width"], wanted)
    chunks = SEEN.numpy()
    assert chunks[:, 0].sum() == count
    assert all(rows == 1 or rows * width <= 512 for rows, width in chunks)
    # No chunk could have taken the next one's rows.
    for (rows, width), (_, following) in zip(chunks, chunks[1:], strict=False):
        assert following > width or (rows + 1) * width > 512


@pytest.mark.parametrize(
    ("length", "longest", "width"),
    [
        (0, 512, 8),
        (16, 512, 16),
        (17, 512, 18),
        (17, 17, 17),
        (33, 512, 36),
        (513, 4096, 1024),
        (600, 600, 600),
    ],
)
def test_widths(length, longest, width):
    assert bucket_width(tf.constant(length), longest).numpy() == width


@pytest.mark.parametrize("longest", [4, 40, 512, 513, 1100])
def test_all_widths_up_to_the_longest(longest):
    lengths = range(longest + 1)
    wanted = sorted({int(bucket_width(tf.constant(n), longest)) for n in lengths})
    assert widths_up_to(longest) == wanted
