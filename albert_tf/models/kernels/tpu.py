"""The operations for training on a TPU; `tpu_operations` describes what is fast there."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.models.kernels import tpu_operations, xla_internals
from albert_tf.models.kernels.fused import FusedKernels
from albert_tf.models.kernels.interface import Norm, Projections
from albert_tf.models.kernels.plain import Dropout
from albert_tf.models.kernels.tpu_operations import Twins


@dataclasses.dataclass(frozen=True)
class _Product:
    """Queries, keys or values [B, S, N, D], computed where an operation reads them as a tensor.

    The gradient of a bias takes a pass over [B, S, H]. Two of the three can do without: the softmax
    ignores the key's bias, unless rotations change it from position to position. Its rows sum to 1,
    unless there is dropout, so the value's bias passes through unchanged and becomes a part of the
    output's.
    """

    x: tf.Tensor  # [B, S, H]
    kernel: tf.Tensor  # [H, N, D]
    bias: tf.Tensor  # [N, D]

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        """Return [B, S, N, D]."""
        return tpu_operations.affine(self.x, self.kernel, self.bias, "bsh,hnd->bsnd")


class _Context(NamedTuple):
    """A context to which a bias must still be added."""

    x: tf.Tensor  # [B, S, N, D]
    bias: tf.Tensor | None  # [N, D]


class TpuKernels(FusedKernels):
    """Hidden states are `Twins` [B, S, H]: work is not fused into a product through a reshape."""

    def enter(self, x: tf.Tensor) -> Twins:
        """Compute `Kernels.enter`."""
        return Twins(x, x)

    def leave(self, x: Twins | tf.Tensor, shape: Sequence) -> tf.Tensor:
        """Compute `Kernels.leave`."""
        return x.residual if isinstance(x, Twins) else x

    def affine(self, x: Twins | tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.affine`."""
        return tpu_operations.affine(x.operand if isinstance(x, Twins) else x, kernel, bias)

    def projections(self, weights: Projections, num_heads: int) -> Projections:
        """Return the weights: one product for all three would need copies of its result."""
        return weights

    def into_heads(  # type: ignore[override]  # training computes all queries
        self,
        x: Twins,
        projections: Projections,
        mask: tf.Tensor,
        num_heads: int,
        num_queries: None = None,
    ) -> tuple[_Product, _Product, _Product]:
        """Compute `Kernels.into_heads`."""
        width = projections.query_kernel.shape[0]
        heads = [num_heads, width // num_heads]
        scale = heads[1] ** -0.5

        def product(kernel: tf.Tensor, bias: tf.Tensor) -> _Product:
            return _Product(x.operand, tf.reshape(kernel, [width, *heads]), tf.reshape(bias, heads))

        return (
            product(projections.query_kernel * scale, projections.query_bias * scale),
            product(projections.key_kernel, projections.key_bias),
            product(projections.value_kernel, projections.value_bias),
        )

    def rotate(self, x: _Product | tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.rotate`."""
        return tpu_operations.rotate(tf.convert_to_tensor(x))

    def attend(
        self,
        query: _Product | tf.Tensor,
        keys: _Product | tf.Tensor,
        values: _Product | tf.Tensor,
        mask: tf.Tensor,
        dropout: Dropout | None,
    ) -> _Context:
        """Compute `Kernels.attend`."""
        bias = None
        if isinstance(keys, _Product):
            fixed = tpu_operations.without_gradient(keys.bias)
            keys = dataclasses.replace(keys, bias=fixed)
        if dropout is None and isinstance(values, _Product):
            bias, zeros = values.bias, tf.zeros_like(values.bias)
            values = dataclasses.replace(values, bias=zeros)
        q, k, v = map(tf.convert_to_tensor, (query, keys, values))
        parts = tpu_operations.num_blocks(*q.shape[:3])
        return _Context(tpu_operations.attention(q, k, v, mask, dropout, parts), bias)

    def out_of_heads(self, context: _Context, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.out_of_heads`."""
        if context.bias is not None:
            bias += tf.linalg.matvec(kernel, tf.reshape(context.bias, [-1]), transpose_a=True)
        kernel = tf.reshape(kernel, [*context.x.shape[2:], kernel.shape[1]])
        return tpu_operations.affine(context.x, kernel, bias, "bsnd,ndh->bsh")

    def add(self, x: Twins, update: tf.Tensor, dropout: Dropout | None) -> Twins:
        """Compute `Kernels.add`."""
        return self.enter(x.residual + self.dropout(update, dropout))

    def add_norm(
        self, x: Twins, update: tf.Tensor | None, norm: Norm, dropout: Dropout | None = None
    ) -> Twins:
        """Compute `Kernels.add_norm`."""
        return tpu_operations.add_dropout_norm(x.residual, update, *norm, dropout)

    _next_use = staticmethod(tpu_operations.chained)

    def _fresh(self, x: tf.Tensor) -> tf.Tensor:
        """Return a new tensor: XLA would read x from all inputs in each product, beside copies."""
        return xla_internals.barrier(x)[0]

    linear_cross_entropy = staticmethod(tpu_operations.linear_cross_entropy)
