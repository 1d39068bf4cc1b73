"""Tests of lists that callers of the library pass."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.arguments import list_of
from albert_tf.runtime.errors import InputError


@pytest.mark.parametrize(
    "single", ["x", b"x", 1, None, np.array("x"), tf.constant("x"), {"x": 1}, {"x"}]
)
def test_a_single_value_is_no_list(single):
    with pytest.raises(
        InputError, match=r"^Texts, please\. Received: .*\. Pass a list, also for a"
    ):
        list_of(str, single, "Texts, please.")


def test_iterables_are_lists_and_their_errors_pass():
    for values in (["x"], ("x",), np.array(["x"]), iter(["x"]), {"x": 1}.keys()):
        assert list_of(str, values, "") == ["x"]

    def failing():
        yield "x"
        raise TypeError("of the caller")

    with pytest.raises(TypeError, match="of the caller"):
        list_of(str, failing(), "")
