"""AlbertPretrainer: the encoder with its masked-LM and sentence-order heads."""

from collections.abc import Mapping

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.layers import common
from albert_tf.models.layers.heads import MlmHead, PairHead


class AlbertPretrainer(tf_keras.Model):
    """Encoder + MLM head + pair head (paper section 3.1).

    Inputs: the encoder's dict, and `masked_lm_positions` int32 [B, P].
    Outputs: the encoder's, and `mlm_logits` float32 [B, P, V], `pair_logits` float32 [B, 2].
    `unroll` is the encoder's.
    """

    def __init__(self, config: AlbertConfig, unroll: bool = True, name: str = "pretrainer") -> None:
        super().__init__(name=name)
        self.config = config
        self.encoder = AlbertEncoder(config, unroll)
        self.mlm_head = MlmHead(config)
        self.pair_head = PairHead(config)

    @tf.autograph.experimental.do_not_convert  # nothing to convert, but it would take seconds
    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        training: bool = False,
        dropout_key: common.DropoutKey | None = None,
    ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
        outputs = self.encoder(
            {name: inputs[name] for name in INPUTS}, training=training, dropout_key=dropout_key
        )
        return outputs | {
            "mlm_logits": self.mlm_head(
                outputs["sequence_output"],
                inputs["masked_lm_positions"],
                self.encoder.embeddings.word_embeddings,
            ),
            "pair_logits": self.pair_head(outputs["pooled_output"]),
        }

    def create_weights(self) -> "AlbertPretrainer":
        """Creates every weight by one call on a batch of padding; returns self."""
        ids = {name: tf.zeros([1, 1], tf.int32) for name in INPUTS}
        self(ids | {"masked_lm_positions": tf.zeros([1, 1], tf.int32)})
        return self
