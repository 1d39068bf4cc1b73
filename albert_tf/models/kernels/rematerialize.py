"""Consecutive layers whose gradient keeps only each layer's input and recomputes the rest.

Both directions are a loop over the layers, so that the code does not grow with depth. The tensors
that a gradient needs (attention matrices, the feed-forward's inner activations) exist for one layer
at a time and, with chunks, for one part of the batch at a time.
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

# (weights, x, mask, dropout key, number of the layer) -> the output, of x's shape and dtype
TensorFunction = Callable[
    [Sequence[tf.Tensor], tf.Tensor, tf.Tensor, tf.Tensor | None, tf.Tensor], tf.Tensor
]


def run_layers(
    layer: TensorFunction,
    weights: Sequence[tf.Tensor],
    x: tf.Tensor,
    mask: tf.Tensor,
    dropout_key: tf.Tensor | None,
    count: int,
    chunks: int = 1,
    fresh: Callable[[tf.Tensor], tf.Tensor] = lambda x: x,
) -> list[tf.Tensor]:
    """Apply `layer` `count` times with the same weights; return all outputs, [B, S, H] each.

    Only the gradient of the last output is used. Pass the others through `without_gradient`.

    Args:
      layer: a pure function of its arguments, so that a second call computes the same.
      weights: float32 tensors; their gradients are summed in float32.
      x: the input of the first layer, [B, S, H].
      mask: [B, 1, 1, S], without gradient.
      dropout_key: int32 [2]; None for no dropout.
      count: the number of layers.
      chunks: the number of parts of the batch, computed one after another; must divide B.
      fresh: applied to the input of a layer that is recomputed; returns the same tensor.

    Raises:
      ValueError: `chunks` does not divide a static B.
    """
    loops = _Loops(layer, _split(mask, chunks), dropout_key, count, chunks, fresh)

    @tf.custom_gradient
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[list[tf.Tensor], Callable]:
        inputs, last = loops.forward(weights, x)
        outputs = [tf.reshape(inputs[number], tf.shape(x)) for number in range(1, count)]
        outputs.append(last)

        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return loops.backward(weights, inputs, upstream[-1])

        return outputs, gradient

    return list(run(x, *weights))


@tf.custom_gradient
def without_gradient(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Return x; a loss that depends on it fails instead of silently getting a zero gradient."""

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # Fail when it runs, not when it is traced, since saving a model traces every gradient.
        fail = tf.debugging.Assert(
            False,
            [
                "with `rematerialize`, a loss must depend only on the last layer, since no other "
                "gradient is computed. Received: a loss of `encoder_outputs`. Set "
                "rematerialize=False."
            ],
        )
        with tf.control_dependencies([] if fail is None else [fail]):
            # XLA drops Assert.
            return tf.fill(tf.shape(upstream), tf.cast(float("nan"), upstream.dtype))

    return tf.identity(x), gradient


@dataclasses.dataclass(frozen=True)
class _Loops:
    """The two loops over (layer, chunk); one chunk is [B / chunks, S, H]."""

    layer: TensorFunction
    masks: tf.Tensor  # [chunks, B / chunks, 1, 1, S]
    dropout_key: tf.Tensor | None  # int32 [2]
    count: int
    chunks: int
    fresh: Callable[[tf.Tensor], tf.Tensor]

    def forward(self, weights: Sequence[tf.Tensor], x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each layer's input, [count, chunks, B / chunks, S, H], and the last output."""
        parts, last = _split(x, self.chunks), self.count * self.chunks
        # Slot i * chunks + c holds the input of layer i for chunk c. The loop writes every slot and
        # reads none, so that XLA need not clear them first.
        slots = tf.TensorArray(
            parts.dtype, last, element_shape=parts.shape[1:], clear_after_read=False
        )

        def body(slot: tf.Tensor, slots: tf.TensorArray, state: tf.TensorArray) -> tuple:
            chunk = slot % self.chunks
            x = state.read(chunk)
            y = self._apply(weights, x, slot)
            return slot + 1, slots.write(slot, x), state.write(chunk, y)

        _, slots, state = tf.while_loop(
            lambda slot, *_: slot < last,
            body,
            (tf.constant(0), slots, _slots(parts, self.chunks)),
            parallel_iterations=1,
        )
        inputs = tf.reshape(slots.stack(), tf.concat([[self.count], tf.shape(parts)], 0))
        return inputs, tf.reshape(state.stack(), tf.shape(x))

    def backward(
        self, weights: Sequence[tf.Tensor], inputs: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Return the gradients of x and of each weight."""
        parts = _split(upstream, self.chunks)

        def body(slot: tf.Tensor, gradients: tf.TensorArray, sums: tuple) -> tuple:
            chunk = slot % self.chunks
            x = tf.ensure_shape(inputs[slot // self.chunks, chunk], parts.shape[1:])
            x = self.fresh(x)
            with tf.GradientTape() as tape:
                tape.watch([x, weights])
                y = self._apply(weights, x, slot)
            d_x, d_weights = tape.gradient(y, [x, weights], gradients.read(chunk))
            sums = tuple(total + part for total, part in zip(sums, d_weights, strict=True))
            return slot - 1, gradients.write(chunk, d_x), sums

        state = (
            tf.constant(self.count * self.chunks - 1),
            _slots(parts, self.chunks),
            tuple(tf.zeros_like(weight) for weight in weights),
        )
        _, gradients, sums = tf.while_loop(
            lambda slot, *_: slot >= 0, body, state, parallel_iterations=1
        )
        return (tf.reshape(gradients.stack(), tf.shape(upstream)), *sums)

    def _apply(self, weights: Sequence[tf.Tensor], x: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
        chunk, key = slot % self.chunks, self.dropout_key
        if key is not None and self.chunks > 1:
            key = tf.concat([key, [chunk]], 0)
        return self.layer(weights, x, self.masks[chunk], key, slot // self.chunks)


def _split(x: tf.Tensor, chunks: int) -> tf.Tensor:
    """Reshape [B, ...] to [chunks, B / chunks, ...]; fail if `chunks` does not divide B."""
    batch = x.shape[0]
    if batch is not None and batch % chunks:
        raise ValueError(
            "`rematerialize_chunks` must divide the batch size of a replica. "
            f"Received: {chunks} chunks, {batch} sequences."
        )
    size = tf.shape(x)[0] // chunks if batch is None else batch // chunks
    return tf.reshape(x, tf.concat([[chunks, size], tf.shape(x)[1:]], 0))


def _slots(parts: tf.Tensor, size: int) -> tf.TensorArray:
    """Return an array of `size` slots, the first of which hold the chunks."""
    slots = tf.TensorArray(parts.dtype, size, element_shape=parts.shape[1:], clear_after_read=False)
    for chunk in range(parts.shape[0]):
        slots = slots.write(chunk, parts[chunk])
    return slots
