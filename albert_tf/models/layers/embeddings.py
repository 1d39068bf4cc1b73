"""Factorized embeddings: tables of width E, then a projection to H (paper section 3.1)."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.interface import PLAIN, Dropout, Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.configured import ConfigMixin


@tf_keras.saving.register_keras_serializable("albert_tf")
class AlbertEmbeddings(ConfigMixin, tf_keras.layers.Layer):
    """Word + type + learned position embeddings, LayerNorm, dropout, and a projection E -> H.

    The projection has a bias. The factorization has V x E + E x H parameters instead of V x H. If E
    equals H, there is no projection, as in BERT. Rotary positions have no table here.

    Inputs: `input_word_ids`, `input_type_ids`, int32 [B, S].
    Output: [B, S, H] in the compute dtype.
    """

    def __init__(self, config: AlbertConfig, name: str = "embeddings", **kwargs: Any) -> None:
        super().__init__(config, name=name, **kwargs)
        self.layer_norm = common.layer_norm(config.layer_norm_eps, "layer_norm")
        projects = config.embedding_size != config.hidden_size
        self.projection = (
            common.Affine(config, config.hidden_size, "projection") if projects else None
        )

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        config = self.config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.type_embeddings = self._table("type_embeddings", config.type_vocab_size)
        if config.positions == "learned":
            self.position_embeddings = self._table("position_embeddings", config.max_positions)
        projections = () if self.projection is None else (self.projection,)
        common.build((self.layer_norm, *projections), config.embedding_size)
        super().build(input_shape)

    def _table(self, name: str, rows: int) -> tf.Variable:
        return self.add_weight(
            name=name,
            shape=(rows, self.config.embedding_size),
            initializer=common.initializer(self.config),
            experimental_autocast=False,  # the loss reads the table in float32
        )

    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        dropout_key: common.DropoutKey | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        dropout_key = common.dropout_key_of(self.config, dropout_key, training)
        return self.run(PLAIN, inputs, dropout_key, training)

    def run(
        self,
        ops: Kernels,
        inputs: Mapping[str, tf.Tensor],
        dropout_key: common.DropoutKey | None,
        training: bool,
    ) -> tf.Tensor:
        """Apply the layer with the operations of a set of kernels."""
        word_ids, type_ids = inputs["input_word_ids"], inputs["input_type_ids"]
        x = tf.gather(self.word_embeddings, word_ids)  # [B, S, E]
        x += self._types(type_ids, x.dtype, training)
        if self.config.positions == "learned":
            length = tf.shape(word_ids)[1]
            x += tf.cast(self.position_embeddings[:length], x.dtype)
        x = tf.cast(self.layer_norm(x), self.compute_dtype)
        dropout_key = dropout_key if training else None
        x = ops.dropout(x, Dropout.of(self.config.hidden_dropout, dropout_key))
        if self.projection is None:
            return x
        kernel, bias = map(tf.convert_to_tensor, (self.projection.kernel, self.projection.bias))
        x = ops.affine(ops.enter(x), kernel, bias)
        return ops.leave(x, common.shape_of(word_ids))

    def _types(self, type_ids: tf.Tensor, dtype: tf.DType, training: bool) -> tf.Tensor:
        if not training:
            return tf.cast(tf.gather(self.type_embeddings, type_ids), dtype)
        # A one-hot product: the gradient of a gather would be a slow scatter into few rows.
        one_hot = tf.one_hot(type_ids, self.config.type_vocab_size, dtype=dtype)
        return tf.tensordot(one_hot, tf.cast(self.type_embeddings, dtype), 1)
