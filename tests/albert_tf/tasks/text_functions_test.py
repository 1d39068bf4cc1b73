"""Tests of batches by length: the order of results and the memory that they take."""

import tracemalloc

import numpy as np
import pytest

from albert_tf.tasks.text_functions import in_batches


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 8])
def test_results_are_in_the_order_of_the_texts(batch_size):
    texts, batches = ["ccc", "a", "", "bb", "dd"], []

    def compute(batch: list[str]) -> np.ndarray:
        batches.append(batch)
        return np.array([[len(text), 0] for text in batch], np.float16)

    found = in_batches(compute, texts, batch_size)
    assert found.tolist() == [[3, 0], [1, 0], [0, 0], [2, 0], [2, 0]] and found.dtype == np.float16
    assert sum(batches, []) == ["", "a", "bb", "dd", "ccc"]
    assert max(map(len, batches)) == min(batch_size, 5)


def test_results_are_held_once():
    texts = ["a"] * 2000
    tracemalloc.start()
    try:
        found = in_batches(lambda batch: np.ones([len(batch), 1000], np.float32), texts, 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.nbytes == 8_000_000 and peak < 1.5 * found.nbytes
