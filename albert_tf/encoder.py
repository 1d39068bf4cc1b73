"""AlbertEncoder: ids in, hidden states out."""

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from albert_tf.config import AlbertConfig
from albert_tf.layers import common
from albert_tf.layers.attention import additive_mask
from albert_tf.layers.embeddings import AlbertEmbeddings
from albert_tf.layers.shared_stack import SharedStack

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")


class AlbertEncoder(tf_keras.Model):
    """The encoder of ALBERT (arXiv 1909.11942), and of BERT where nothing is shared and E == H.

    Inputs: a dict of int32 [B, S]: `input_word_ids`, `input_mask` (1 = real piece, 0 = padding),
    `input_type_ids` (0 = first segment, 1 = second); S is at most `config.max_positions`.

    Outputs, named as in TF Hub's text encoders:
      sequence_output: float32 [B, S, H], the last layer.
      pooled_output: float32 [B, H], tanh(dense(first position)).
      encoder_outputs: a list of `num_layers` tensors [B, S, H], one per layer.

    Dropout happens where `training` is true, keyed by `dropout_key` (int32 [2]); without a key one
    is drawn per call.

    >>> encoder = AlbertEncoder(AlbertConfig.from_preset("albert-base-v2"))
    >>> encoder(fake_inputs)["pooled_output"].shape
    """

    def __init__(self, config: AlbertConfig, name: str = "encoder") -> None:
        super().__init__(name=name)
        self.config = config
        self.embeddings = AlbertEmbeddings(config)
        self.stack = SharedStack(config)
        self.pooler = common.dense(config, config.hidden_size, "pooler")

    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        training: bool = False,
        dropout_key: common.DropoutKey | None = None,
    ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
        self._check_length(inputs["input_word_ids"])
        config = self.config
        key = None
        if training and (config.hidden_dropout or config.attention_dropout):
            key = common.new_dropout_key() if dropout_key is None else dropout_key
        x = self.embeddings(inputs, key=common.fold_in(key, 0))  # [B, S, H]
        outputs = self.stack(x, additive_mask(inputs["input_mask"]), key=common.fold_in(key, 1))
        pooled = tf.tanh(tf.cast(self.pooler(outputs[-1][:, 0]), tf.float32))
        return {
            "sequence_output": tf.cast(outputs[-1], tf.float32),
            "pooled_output": pooled,
            "encoder_outputs": outputs,
        }

    def _check_length(self, word_ids: tf.Tensor) -> None:
        length = word_ids.shape[1]
        if length is not None and length > self.config.max_positions:
            raise ValueError(
                "sequences must not be longer than `max_positions`. "
                f"Received: {length} pieces, max_positions={self.config.max_positions}."
            )

    def create_weights(self) -> "AlbertEncoder":
        """Creates every weight by one call on a batch of padding; returns self."""
        self({name: tf.zeros([1, 8], tf.int32) for name in INPUTS})
        return self
