"""The operations of `tpu`, for training.

On a TPU, XLA computes element-wise work inside a matrix product at no cost, as its operands are
read or its results are written. A pass of its own over [B, S, H] takes longer than a product with
[H, H], and a copy to another layout longer still. So here

- heads stay axes of the products: no tensor is transposed;
- a LayerNorm is computed again in each product that reads it, and so is its gradient;
- products are not rounded before float32 arithmetic, and gradients of weights are sums in float32;
- a softmax is normalized after the product with the values, on a tensor of D instead of S columns.

The functions equal the plain ones, but for losses of more than LARGEST_EXCESS. Shapes are those of
`albert_tf.models.layers`.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.models.kernels import xla_internals
from albert_tf.models.kernels.plain import Dropout, dropped, rotation

# Of float32 logits: half of the fast memory of a chip, in which they then stay.
BLOCK_BYTES = 2**26
MAX_BLOCKS = 8  # each is a part of the program
CHAINED_BYTES = 2**27  # the fast memory of a chip
# By more than this, no logit counts as exceeding the label's, so that sums of exponentials are
# finite. The loss of a uniform guess among 30,000 pieces is 10; only a run that has diverged has a
# loss of 75, and it then gets a smaller one, with a finite gradient that still lowers it.
LARGEST_EXCESS = 75.0


class Twins(NamedTuple):
    """Two equal tensors: if a tensor has both uses, XLA writes it to memory and reads it again."""

    residual: tf.Tensor  # to be added
    operand: tf.Tensor  # to be multiplied


def einsum(equation: str, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return a sum of products in float32, as by `tf.einsum`; each letter is in two of three."""
    left, right, out = re.split(",|->", equation)
    batch = [letter for letter in left if letter in right and letter in out]
    summed = [letter for letter in left if letter in right and letter not in out]
    rest = [letter for letter in left + right if letter in out and letter not in batch]
    places = [[[side.index(x) for x in axes] for side in (left, right)] for axes in (summed, batch)]
    product = xla_internals.dot(a, b, *places)
    natural = [*batch, *rest]
    return tf.transpose(product, [natural.index(letter) for letter in out])


def affine(
    x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, equation: str = "bsk,kn->bsn"
) -> tf.Tensor:
    """Return the product of x and a float32 kernel plus a bias, in x's dtype."""
    rows, columns, out = re.split(",|->", equation)

    @tf.custom_gradient
    def op(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        narrow = tf.cast(kernel, x.dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            d_x = einsum(f"{out},{columns}->{rows}", upstream, narrow)
            d_kernel = einsum(f"{rows},{out}->{columns}", x, upstream)
            is_row = [i for i, letter in enumerate(out) if letter not in columns]
            d_bias = tf.reduce_sum(tf.cast(upstream, tf.float32), is_row)
            return tf.cast(d_x, x.dtype), d_kernel, d_bias

        return tf.cast(einsum(equation, x, narrow) + bias, x.dtype), gradient

    return op(x, kernel, bias)


def without_gradient(x: tf.Tensor) -> tf.Tensor:
    """Return x, with a gradient of zeros."""
    return tf.custom_gradient(lambda x: (tf.identity(x), tf.zeros_like))(x)


def chained(weight: tf.Tensor, at_least: int = CHAINED_BYTES) -> tf.Tensor:
    """Return a weight for the next layer, whose gradient is summed before another is added.

    XLA would keep the gradients of all layers and sum them in one pass. Weights of fewer than
    `at_least` bytes are left to it: their gradients may stay in the fast memory of the chip.
    """
    if 4 * weight.shape.num_elements() < at_least:
        return tf.identity(weight)
    return tf.custom_gradient(lambda x: (tf.identity(x), xla_internals.barrier))(weight)


def attention(
    query: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    mask: tf.Tensor,
    dropout: Dropout | None,
    parts: int = 1,
) -> tf.Tensor:
    """Return dropout(softmax(q k^T + mask)) v of [B, S, N, D], computed in float32.

    The gradient of the softmax needs sum(p * dp), which equals sum(context * d_context) (arXiv
    2205.14135, section B.4).

    Args:
      query: [B, S, N, D], scaled.
      keys: [B, S, N, D].
      values: [B, S, N, D].
      mask: float32 [B, 1, 1, S].
      dropout: that of the attention matrix.
      parts: the number of blocks of the batch, computed one after another.
    """

    @tf.custom_gradient
    def op(*inputs: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        split = zip(*(tf.split(x, parts) for x in (*inputs, mask)), strict=True)
        blocks = (
            _attend(block, lambda x, i=i: _drop(x, dropout, i, parts))
            for i, block in enumerate(split)
        )
        contexts, backward = zip(*blocks, strict=True)

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            upstreams = tf.split(upstream, parts)
            gradients = [run(part) for run, part in zip(backward, upstreams, strict=True)]
            return [tf.concat(of_blocks, 0) for of_blocks in zip(*gradients, strict=True)]

        return tf.concat(contexts, 0), gradient

    return op(query, keys, values)


def num_blocks(batch: int | None, length: int | None, heads: int) -> int:
    """Return into how many blocks, at most MAX_BLOCKS, attention should divide the batch.

    They are the fewest equal blocks whose float32 logits fit into BLOCK_BYTES or, if MAX_BLOCKS are
    too few for that, the most. A batch of unknown size, as Keras traces it, is not divided.
    """
    if batch is None or length is None:
        return 1
    at_once = max(1, BLOCK_BYTES // (4 * heads * length * length))
    divisors = [n for n in range(1, MAX_BLOCKS + 1) if batch % n == 0]
    return next((n for n in divisors if n * at_once >= batch), divisors[-1])


def _drop(x: tf.Tensor, dropout: Dropout | None, part: int, parts: int) -> tf.Tensor:
    """Apply dropout to one of `parts` equal parts with its rows of the whole mask."""
    if dropout is None:
        return x
    if parts > 1:
        key = dropout.key
        outer = key[2] if key.shape[0] == 3 else tf.constant(0)
        dropout = dropout._replace(key=tf.stack([key[0], key[1], outer * parts + part]))
    return dropped(x, dropout)


def _attend(block: Sequence[tf.Tensor], drop: Callable) -> tuple[tf.Tensor, Callable]:
    """Return the context of (q, k, v, mask) and the function of the gradients of q, k and v."""
    q, k, v, mask = block
    dtype = q.dtype

    def by_query(x: tf.Tensor) -> tf.Tensor:
        return tf.transpose(x, [0, 2, 1])[..., None]  # [B, N, S] -> [B, S, N, 1]

    logits = einsum("bsnd,btnd->bnst", q, k) + mask
    largest = tf.reduce_max(logits, -1, keepdims=True)
    weights = tf.cast(tf.exp(logits - largest), dtype)
    total = tf.reduce_sum(tf.cast(weights, tf.float32), -1)  # [B, N, S]
    context = einsum("bnst,btnd->bsnd", drop(weights), v) / by_query(total)
    context = tf.cast(context, dtype)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        up = tf.cast(upstream, tf.float32)
        along = tf.reduce_sum(up * tf.cast(context, tf.float32), -1)  # [B, S, N]
        along = tf.transpose(along, [0, 2, 1]) / total  # [B, N, S]
        scaled = tf.cast(up / by_query(total), dtype)
        d_v = einsum("bnst,bsnd->btnd", drop(weights), scaled)
        d_weights = drop(einsum("bsnd,btnd->bnst", scaled, v))
        d_logits = tf.cast(weights, tf.float32) * (d_weights - along[..., None])
        d_logits = tf.cast(d_logits, dtype)
        d_q = einsum("bnst,btnd->bsnd", d_logits, k)
        d_k = einsum("bnst,bsnd->btnd", d_logits, q)
        return tf.cast(d_q, dtype), tf.cast(d_k, dtype), tf.cast(d_v, dtype)

    return context, gradient


def rotate(x: tf.Tensor) -> tf.Tensor:
    """Apply rotary positions to x [B, S, N, D]."""

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return rotation(x, 1.0, axis=1), lambda d: rotation(d, -1.0, axis=1)

    return op(x)


def add_dropout_norm(
    x: tf.Tensor,
    update: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    eps: float,
    dropout: Dropout | None,
) -> Twins:
    """Return LayerNorm(x + dropout(update)) of [B, S, H], computed in float32, in x's dtype.

    If `update` is None, return LayerNorm(x). The sum is rounded to x's dtype.
    """

    def drop(x: tf.Tensor) -> tf.Tensor:
        return x if dropout is None else dropped(x, dropout)

    @tf.custom_gradient
    def op(gamma: tf.Tensor, beta: tf.Tensor, *added: tf.Tensor) -> tuple[tuple, Callable]:
        total = tf.cast(added[0], tf.float32)
        if update is not None:
            total += drop(tf.cast(added[1], tf.float32))
        mean = tf.reduce_mean(total, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(total), -1, keepdims=True) - tf.square(mean)
        inverse = tf.math.rsqrt(tf.maximum(variance, 0.0) + eps)
        statistics = tf.cast(total, x.dtype), mean, inverse

        def normal(total: tf.Tensor, mean: tf.Tensor, inverse: tf.Tensor) -> tf.Tensor:
            return (tf.cast(total, tf.float32) - mean) * inverse

        def result() -> tf.Tensor:
            return tf.cast(normal(*xla_internals.barrier(*statistics)) * gamma + beta, x.dtype)

        def gradient(*upstreams: tf.Tensor) -> tuple[tf.Tensor, ...]:
            upstream = tf.add_n([tf.cast(twin, tf.float32) for twin in upstreams])
            n = normal(*statistics)
            d_normal = upstream * gamma
            mean_d = tf.reduce_mean(d_normal, -1, keepdims=True)
            along = tf.reduce_mean(d_normal * n, -1, keepdims=True)
            stored = tf.cast(upstream, x.dtype), mean_d, along, *statistics

            def d_total() -> tf.Tensor:
                upstream, mean_d, along, *read = xla_internals.barrier(*stored)
                d_normal = tf.cast(upstream, tf.float32) * gamma
                return read[2] * (d_normal - mean_d - normal(*read) * along)

            d_gamma = tf.reduce_sum(upstream * n, [0, 1])
            d_beta = tf.reduce_sum(upstream, [0, 1])
            d_x = tf.cast(d_total(), x.dtype)
            if update is None:
                return d_gamma, d_beta, d_x
            return d_gamma, d_beta, d_x, tf.cast(drop(d_total()), update.dtype)

        return (result(), result()), gradient

    return Twins(*op(gamma, beta, x, *([] if update is None else [update])))


def linear_cross_entropy(
    x: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    dtype: tf.DType,
) -> tf.Tensor:
    """Compute `Kernels.linear_cross_entropy`, with logits in float32 and one pass over them.

    A loss is the logarithm of the sum of exp(logit - the label's logit). The label's logit is known
    before the others, so the product adds the exponentials as it writes the logits.
    """
    size, weight = tf.shape(bias)[0], weights[:, None]
    is_valid = (labels >= 0) & (labels < size)
    safe = tf.where(is_valid, labels, 0)
    is_label = tf.range(size)[None] == safe[:, None]  # [N, V]
    is_earlier = tf.range(size)[None] < safe[:, None]

    def exponentials(excess: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.minimum(excess, LARGEST_EXCESS))

    @tf.custom_gradient
    def op(x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        narrow_x, narrow_table = tf.cast(x, dtype), tf.cast(table, dtype)
        label_logit = tf.cast(tf.gather(narrow_table, safe), tf.float32) * tf.cast(
            narrow_x, tf.float32
        )
        label_logit = tf.reduce_sum(label_logit, -1) + tf.gather(bias, safe)
        excess = einsum("ne,ve->nv", narrow_x, narrow_table) + bias - label_logit[:, None]
        is_before = ((excess > 0.0) | ((excess == 0.0) & is_earlier)) & ~is_label
        is_right = tf.reduce_sum(tf.cast(is_before, tf.float32), -1) == 0.0
        total = tf.reduce_sum(exponentials(excess), -1)
        losses = tf.where(is_valid, tf.math.log(total), float("nan"))
        right = tf.cast(is_right & is_valid, tf.float32)
        sums = tf.stack([tf.reduce_sum(losses * weights), tf.reduce_sum(right * weights)])
        d_logits = exponentials(excess) * (weight / total[:, None])
        d_logits -= tf.where(is_label, weight, 0.0)
        # Without the barrier, each product would compute the exponentials again.
        d_logits, d_bias = xla_internals.barrier(
            tf.cast(d_logits, dtype), tf.reduce_sum(d_logits, 0)
        )

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scaled = tf.cast(upstream[0] * x, dtype)  # 1 / count alone would be rounded too
            d_x = einsum("nv,ve->ne", d_logits, narrow_table)
            return upstream[0] * d_x, einsum("nv,ne->ve", d_logits, scaled), upstream[0] * d_bias

        return sums, gradient

    return op(x, table, bias)
