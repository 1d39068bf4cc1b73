"""The limit: the FLOP/s that matrix products reach on this machine through TensorFlow."""

import time
from collections.abc import Callable

import tensorflow as tf

from benchmarks.workloads import Workload

SQUARE = 2048


def limit(workload: Workload, precision: str, jit: bool) -> Callable[[], float]:
    """Return a function that measures FLOP/s.

    It returns the better of large squares and of the model's largest products.
    """
    model = workload.model
    h, f = model.hidden_size, model.intermediate_size
    tokens, predicted = (
        workload.batch_size * workload.seq_length,
        workload.batch_size * workload.predictions,
    )
    of_model = [
        (tokens, h, h),
        (tokens, h, f),
        (tokens, f, h),
        (predicted, model.embedding_size, model.vocab_size),
    ]
    products = [_rate([(SQUARE, SQUARE, SQUARE)], precision), _rate(of_model, precision)]
    return lambda: max(rate() for rate in products)


def _rate(shapes: list[tuple[int, int, int]], precision: str) -> Callable[[], float]:
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    factors = [
        (tf.cast(tf.random.normal([m, k]), dtype), tf.cast(tf.random.normal([k, n]), dtype))
        for m, k, n in shapes
    ]

    @tf.function
    def run(factors: list[tuple[tf.Tensor, tf.Tensor]]) -> list[tf.Tensor]:
        return [tf.matmul(a, b) for a, b in factors]

    # The clock of the steps: CPU time with one thread, wall-clock time with more.
    is_single = tf.config.threading.get_intra_op_parallelism_threads() == 1
    clock = time.process_time if is_single else time.perf_counter

    def rate() -> float:
        start = clock()
        run(factors)
        return sum(2 * m * k * n for m, k, n in shapes) / (clock() - start)

    return rate
