"""The pretraining heads: masked pieces, and classes such as the order of a pair of segments."""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.interface import PLAIN, Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.configured import ConfigMixin, Float32Layer


@tf_keras.saving.register_keras_serializable("albert_tf")
class MlmHead(ConfigMixin, Float32Layer):
    """Logits over the vocabulary at given positions (paper section 3.1), with a tied decoder.

    The steps are gather, dense H -> E, activation, LayerNorm, product with word_embeddings^T, bias.

    Inputs: sequence_output [B, S, H], floating; masked_lm_positions int32 [B, P]; word_embeddings
    [V, E].
    Output: float32 [B, P, V], computed in float32 under every precision policy.

    `sums` computes the loss without the logits.
    """

    def __init__(self, config: AlbertConfig, name: str = "mlm_head", **kwargs: Any) -> None:
        super().__init__(config, name=name, autocast=False, **kwargs)
        self.transform = common.dense(config, config.embedding_size, "transform")
        self.layer_norm = common.layer_norm(config.mlm_layer_norm_eps, "layer_norm")

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        self.bias = self.add_weight(
            name="output_bias", shape=(self.config.vocab_size,), initializer="zeros"
        )
        common.build((self.transform,), self.config.hidden_size)
        common.build((self.layer_norm,), self.config.embedding_size)
        super().build(input_shape)

    def call(
        self,
        sequence_output: tf.Tensor,
        positions: tf.Tensor,
        word_embeddings: tf.Tensor,
    ) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        x = self._hidden(sequence_output, positions)
        logits = tf.nn.bias_add(tf.matmul(x, word_embeddings, transpose_b=True), self.bias)
        return tf.reshape(logits, tf.concat([tf.shape(positions), [self.config.vocab_size]], 0))

    def sums(
        self,
        ops: Kernels,
        sequence_output: tf.Tensor,
        positions: tf.Tensor,
        word_embeddings: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        dtype: tf.DType = tf.float32,
    ) -> tf.Tensor:
        """Return the weighted sums of cross-entropies and of correct predictions, float32 [2].

        `labels` are int32 and `weights` float32 [B, P]. The products with the table are in `dtype`,
        float32 or bfloat16 (`Kernels.linear_cross_entropy`). The layer must have its weights.
        """
        x = self._hidden(sequence_output, positions)
        table, bias = map(tf.convert_to_tensor, (word_embeddings, self.bias))
        weights = tf.cast(tf.reshape(weights, [-1]), tf.float32)
        return ops.linear_cross_entropy(x, table, bias, tf.reshape(labels, [-1]), weights, dtype)

    def _hidden(self, sequence_output: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Return the input of the product with the table, float32 [B * P, E]."""
        x = tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
        x = tf.cast(x, tf.float32)
        x = PLAIN.activation(self.transform(x), self.config.activation)  # [B, P, E]
        return tf.reshape(self.layer_norm(x), [-1, self.config.embedding_size])


@tf_keras.saving.register_keras_serializable("albert_tf")
class PairHead(ConfigMixin, Float32Layer):
    """Logits of classes (paper section 3.1): pooled_output [B, H] -> float32 [B, num_classes].

    The two classes of sentence order are 0, in order, and 1, swapped.
    """

    def __init__(
        self,
        config: AlbertConfig,
        num_classes: int = 2,
        name: str = "pair_head",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, name=name, **kwargs)
        self.num_classes = num_classes
        self.dense = common.dense(config, num_classes, "dense")

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        common.build((self.dense,), self.config.hidden_size)
        super().build(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"num_classes": self.num_classes}

    def call(self, pooled_output: tf.Tensor) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        return self.dense(tf.cast(pooled_output, tf.float32))
