"""Both faces of the truncation of pairs against taking pieces one by one."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.text.truncation import truncated_lengths, truncated_lengths_in_graph


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 300))
def test_pieces_are_taken_one_by_one_from_the_longer(first, second, limit):
    for odd in (0, 1):
        expected = [first, second]
        while sum(expected) > limit:
            expected[0 if expected[0] + (1 - odd) > expected[1] else 1] -= 1
        lengths = (np.array([first], np.int32), np.array([second], np.int32))
        found = truncated_lengths(*lengths, limit, np.array([odd]))
        assert [n.item() for n in found] == expected
        graph = truncated_lengths_in_graph(*map(tf.constant, lengths), limit, odd)
        assert [n.numpy().item() for n in graph] == expected
        if odd:
            assert [n.item() for n in truncated_lengths(*lengths, limit)] == expected
