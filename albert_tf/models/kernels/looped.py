"""The plain operations, with a loop over the layers, for LiteRT."""

from typing import Any

import tensorflow as tf

from albert_tf.models.kernels.interface import Hidden, Kernels, LayerFunction
from albert_tf.models.kernels.plain import positions_of


class LoopedKernels(Kernels):
    """Outside training, consecutive layers with the same weights are a loop in the graph.

    LiteRT's kernels copy the weights into their own layout once per product in the graph.
    """

    def repeat(
        self,
        layer: LayerFunction,
        weights: Any,
        x: Hidden,
        mask: tf.Tensor,
        dropout_key: tf.Tensor | None,
        numbers: range,
        training: bool,
        chunks: int | None = None,
    ) -> tuple[list[Hidden], Hidden, Any]:
        """Compute `Kernels.repeat`, but return only the hidden states after the last layer."""
        shape = positions_of(mask)

        def step(number: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = layer(weights, self.enter(x), mask, dropout_key, number)
            return number + 1, self.leave(y, shape)  # [B, S, H], as LiteRT must know its shape

        begin = tf.constant(numbers.start), self.leave(x, shape)
        _, last = tf.while_loop(lambda number, _: number < numbers.stop, step, begin)
        return [self.enter(last)], self.enter(last), weights
