"""A run of equal layers whose gradient keeps each layer's input alone and recomputes the rest.

Memory and code then do not grow with depth: both directions are a loop over the layers, and what a
layer needs for its gradient (attention matrices, the feed-forward's inner activations) lives for
one layer at a time. With chunks, for one part of the batch at a time.
"""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

# (weights, x, mask, key, number of the layer) -> the layer's output, of x's shape and dtype
Layer = Callable[
    [Sequence[tf.Tensor], tf.Tensor, tf.Tensor, tf.Tensor | None, tf.Tensor], tf.Tensor
]


def run_layers(
    layer: Layer,
    weights: Sequence[tf.Tensor],
    x: tf.Tensor,
    mask: tf.Tensor,
    chunk_keys: Sequence[tf.Tensor | None],
    count: int,
) -> list[tf.Tensor]:
    """Applies `layer` `count` times with the same weights: the layers' outputs, [B, S, H] each.

    Only the last one's gradient counts; see `without_gradient` for the others.

    Args:
      layer: a pure function of its arguments, so that a second call computes the same.
      weights: float32 tensors; their gradients are summed in float32.
      mask: [B, 1, 1, S], without gradient.
      chunk_keys: the dropout key of each part of the batch; their number must divide B.
      count: how many layers.
    """
    chunks = len(chunk_keys)
    keys = None if chunk_keys[0] is None else tf.stack(chunk_keys)
    loops = _Loops(layer, _split(mask, chunks), keys, count, chunks)

    @tf.custom_gradient
    def run(x: tf.Tensor, *weights: tf.Tensor) -> tuple[list[tf.Tensor], Callable]:
        slots = loops.forward(weights, x)
        outputs = [loops.read_batch(slots, number + 1, x) for number in range(count)]

        def gradient(*upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return loops.backward(weights, slots, upstream[-1])

        return outputs, gradient

    return list(run(x, *weights))


@tf.custom_gradient
def without_gradient(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """x itself; a loss that depends on it is an error rather than a silent zero."""

    def gradient(_: tf.Tensor) -> tf.Tensor:
        raise ValueError(
            "with `rematerialize` a loss must depend on the last layer alone, since only that "
            "one's gradient is computed. Received: a loss of `encoder_outputs`. Set "
            "rematerialize=False."
        )

    return tf.identity(x), gradient


@dataclasses.dataclass(frozen=True)
class _Loops:
    """Slot i * chunks + c of a TensorArray holds what layer i gets for chunk c, [B / chunks, S, H].

    On the way back a slot whose layer is done takes the gradient of what it held.
    """

    layer: Layer
    masks: tf.Tensor  # [chunks, B / chunks, 1, 1, S]
    keys: tf.Tensor | None  # int32 [chunks, 2]
    count: int
    chunks: int

    def forward(self, weights: Sequence[tf.Tensor], x: tf.Tensor) -> tf.TensorArray:
        parts, last = _split(x, self.chunks), self.count * self.chunks
        slots = tf.TensorArray(
            x.dtype,
            last + self.chunks,
            element_shape=parts.shape[1:],
            clear_after_read=False,
        )

        def body(slot: tf.Tensor, slots: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            y = self._apply(weights, slots.read(slot), slot)
            return slot + 1, slots.write(slot + self.chunks, y)

        state = (tf.constant(0), self._write_batch(slots, 0, x))
        return tf.while_loop(lambda slot, _: slot < last, body, state, parallel_iterations=1)[1]

    def backward(
        self, weights: Sequence[tf.Tensor], slots: tf.TensorArray, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """The gradients of x and of each weight."""

        def body(slot: tf.Tensor, slots: tf.TensorArray, sums: tuple) -> tuple:
            x = slots.read(slot)
            with tf.GradientTape() as tape:
                tape.watch([x, weights])
                y = self._apply(weights, x, slot)
            d_x, d_weights = tape.gradient(y, [x, weights], slots.read(slot + self.chunks))
            sums = tuple(total + part for total, part in zip(sums, d_weights, strict=True))
            return slot - 1, slots.write(slot, d_x), sums

        state = (
            tf.constant(self.count * self.chunks - 1),
            self._write_batch(slots, self.count, upstream),
            tuple(tf.zeros_like(weight) for weight in weights),
        )
        _, slots, sums = tf.while_loop(
            lambda slot, *_: slot >= 0, body, state, parallel_iterations=1
        )
        return (self.read_batch(slots, 0, upstream), *sums)

    def read_batch(self, slots: tf.TensorArray, layer: int, like: tf.Tensor) -> tf.Tensor:
        """What a layer gets, [B, S, H] as `like`."""
        first = layer * self.chunks
        parts = [slots.read(first + chunk) for chunk in range(self.chunks)]
        return tf.ensure_shape(tf.concat(parts, 0), like.shape)

    def _write_batch(self, slots: tf.TensorArray, layer: int, x: tf.Tensor) -> tf.TensorArray:
        parts = _split(x, self.chunks)
        for chunk in range(self.chunks):
            slots = slots.write(layer * self.chunks + chunk, parts[chunk])
        return slots

    def _apply(self, weights: Sequence[tf.Tensor], x: tf.Tensor, slot: tf.Tensor) -> tf.Tensor:
        chunk = slot % self.chunks
        key = None if self.keys is None else self.keys[chunk]
        return self.layer(weights, x, self.masks[chunk], key, slot // self.chunks)


def _split(x: tf.Tensor, chunks: int) -> tf.Tensor:
    """[B, ...] -> [chunks, B / chunks, ...]; an error where `chunks` does not divide B."""
    batch = x.shape[0]
    if batch is not None and batch % chunks:
        raise ValueError(
            "`rematerialize_chunks` must divide the batch of a replica. "
            f"Received: {chunks} chunks, {batch} sequences."
        )
    size = tf.shape(x)[0] // chunks if batch is None else batch // chunks
    return tf.reshape(x, tf.concat([[chunks, size], tf.shape(x)[1:]], 0))
