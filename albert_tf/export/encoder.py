"""The encoder as a SavedModel of TF Hub's contract for text encoders."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.encoder import INPUTS, AlbertEncoder
from albert_tf.export.signatures import untracked

_IDS = {name: tf.TensorSpec([None, None], tf.int32, name) for name in INPUTS}


class EncoderModule(tf.__internal__.tracking.AutoTrackable):
    """A reusable SavedModel (https://www.tensorflow.org/hub/reusable_saved_models).

    Call: a dict of int32 [B, S] (`input_word_ids`, `input_mask`, `input_type_ids`) -> a dict of
    `pooled_output` [B, H] (also `default`), `sequence_output` [B, S, H] and `encoder_outputs`, a
    list of [B, S, H]. `hub.KerasLayer(path, trainable=True)` fine-tunes it.
    """

    def __init__(self, encoder: AlbertEncoder) -> None:
        self._encode = untracked(encoder)
        self.variables = encoder.variables
        self.trainable_variables = encoder.trainable_variables
        self.regularization_losses: list = []
        for training in (False, True):
            self.__call__.get_concrete_function(_IDS, training=training)

    @tf.function
    def __call__(
        self, inputs: Mapping[str, tf.Tensor], training: bool = False
    ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
        outputs = self._encode(inputs, training=training)
        return outputs | {"default": outputs["pooled_output"]}

    def signatures(self) -> dict[str, object]:
        """`serving_default`: ids -> pooled_output and sequence_output."""

        @tf.function(input_signature=[_IDS[name] for name in INPUTS])
        def serve(
            input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            outputs = self._encode(
                dict(zip(INPUTS, (input_word_ids, input_mask, input_type_ids), strict=True))
            )
            return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

        return {"serving_default": serve}
