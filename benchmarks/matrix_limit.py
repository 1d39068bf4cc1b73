"""The float rate that this machine's matrix products reach through TensorFlow: the limit."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from benchmarks.workloads import Workload

SQUARE = 2048


@dataclasses.dataclass(frozen=True)
class Products:
    """A callable that multiplies matrices, and the operations that one call takes."""

    run: Callable[[], object]
    flops: int


def products(workload: Workload, precision: str) -> dict[str, Products]:
    """`square`: large square matrices; `model`: the largest products of the forward pass."""
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
    return {
        "square": _products([(SQUARE, SQUARE, SQUARE)], precision),
        "model": _products(of_model, precision),
    }


def _products(shapes: list[tuple[int, int, int]], precision: str) -> Products:
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    factors = [
        (tf.cast(tf.random.normal([m, k]), dtype), tf.cast(tf.random.normal([k, n]), dtype))
        for m, k, n in shapes
    ]

    @tf.function
    def run(factors: list[tuple[tf.Tensor, tf.Tensor]]) -> list[tf.Tensor]:
        return [tf.matmul(a, b) for a, b in factors]

    return Products(lambda: run(factors), sum(2 * m * k * n for m, k, n in shapes))
