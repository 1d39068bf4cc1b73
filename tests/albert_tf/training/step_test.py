"""Parts of a batch, and the keys of their dropout."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.training.step import accumulated, in_parts, num_parts, step_dropout_key


def test_each_seed_step_and_replica_has_a_key_of_its_own():
    """A mask that came again in the next step, or on the next replica, would be no noise."""
    keys = {
        (seed, step, replica): tuple(
            step_dropout_key(seed, tf.constant(step, tf.int64), tf.constant(replica)).numpy()
        )
        for seed, step, replica in itertools.product((0, 1), (0, 1, 1000), (0, 1, 2))
    }
    assert len(set(keys.values())) == len(keys) == 18


def test_each_part_has_a_key_of_its_own():
    """The same where the parts are summed, with or without zeros, and where they are joined."""
    batch, key = tf.range(6), tf.constant([5, 7])

    def compute(rows: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        return tf.concat([rows, key], 0)[None]  # [1, rows + 2]

    joined = in_parts(compute, batch, key, 3).numpy()
    assert joined[:, :2].tolist() == [[0, 1], [2, 3], [4, 5]]
    keys = {tuple(row) for row in joined[:, 2:].tolist()}
    assert len(keys) == 3 and (5, 7) not in keys
    total = joined.sum(axis=0, dtype=np.int32, keepdims=True)
    for zeros in (None, tf.zeros([1, 4], tf.int32)):
        np.testing.assert_array_equal(accumulated(compute, batch, key, 3, zeros), total)
    whole = accumulated(compute, batch, key, 1)
    np.testing.assert_array_equal(whole, [[*range(6), 5, 7]])


@pytest.mark.parametrize(
    ("rows", "at_most", "parts"), [(12, 5, 4), (12, 12, 12), (7, 6, 1), (6, 0, 1), (6, 99, 6)]
)
def test_the_number_of_equal_parts(rows: int, at_most: int, parts: int):
    assert num_parts(rows, at_most) == parts
