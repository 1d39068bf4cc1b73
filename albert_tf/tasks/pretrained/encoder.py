"""Encoders as SavedModels that follow TF Hub's contract for text encoders."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs as OnnxOutputs
from albert_tf.graph.signatures import IDS, checked_inputs, untracked
from albert_tf.models.checkpoints import has_heads
from albert_tf.models.encoder import INPUTS, AlbertEncoder, load_encoder
from albert_tf.models.pretrainer import AlbertPretrainer, load_pretrainer
from albert_tf.tasks.kind import Export, ExportSettings
from albert_tf.text.tokenizer import Tokenizer

_POSITIONS = {"masked_lm_positions": tf.TensorSpec([None, None], tf.int32, "masked_lm_positions")}
Outputs = dict[str, tf.Tensor | list[tf.Tensor]]


class _Reusable(tf.__internal__.tracking.AutoTrackable):
    """A model as a reusable SavedModel (https://www.tensorflow.org/hub/reusable_saved_models)."""

    def __init__(self, model: tf_keras.Model, inputs: Mapping[str, tf.TensorSpec]) -> None:
        self._model: Callable[..., Any] = untracked(model)
        self._max_positions = model.config.max_positions
        self.variables = model.variables
        self.trainable_variables = model.trainable_variables
        self.regularization_losses: list = []
        for training in (False, True):
            self.__call__.get_concrete_function(dict(inputs), training=training)

    @tf.function(autograph=False)
    def __call__(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> Outputs:
        ids = checked_inputs([inputs[name] for name in INPUTS], self._max_positions)
        outputs = self._model({**inputs, **ids}, training=training)
        return outputs | {"default": outputs["pooled_output"]}


class EncoderModule(_Reusable):
    """An encoder for `hub.KerasLayer(path, trainable=True)`.

    Call: a dict of int32 [B, S] (`input_word_ids`, `input_mask`, `input_type_ids`) -> a dict of
    `pooled_output` [B, H] (also as `default`), `sequence_output` [B, S, H] and `encoder_outputs`, a
    list of [B, S, H]. S is at most the model's `max_positions`, which is checked.
    The attribute `mlm` exists if there is a pretrainer. It also takes `masked_lm_positions` int32
    [B, P] and also returns `mlm_logits` [B, P, V]; use it as `hub.KerasLayer(loaded.mlm)`.

    Args:
      encoder: the trained encoder.
      pretrainer: the model with the pretraining heads over the same encoder, if there is one.
    """

    def __init__(self, encoder: AlbertEncoder, pretrainer: AlbertPretrainer | None = None) -> None:
        super().__init__(encoder, IDS)
        if pretrainer is not None:
            assert pretrainer.encoder is encoder
            self.mlm = _Reusable(pretrainer, IDS | _POSITIONS)

    def signatures(self) -> dict[str, object]:
        """Return `serving_default` and `tokens`: ids -> pooled_output and sequence_output."""

        @tf.function(input_signature=[IDS[name] for name in INPUTS], autograph=False)
        def serve(
            input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            ids = (input_word_ids, input_mask, input_type_ids)
            outputs = self._model(checked_inputs(ids, self._max_positions))
            return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

        return {"serving_default": serve, "tokens": serve}


def load_encoder_module(path: str) -> EncoderModule:
    """Load the encoder of a run folder or converted folder, with `mlm` if it has the heads.

    The errors are those of `load_encoder`.
    """
    return _module(Encoder().load(path))


def _module(model: AlbertEncoder | AlbertPretrainer) -> EncoderModule:
    if isinstance(model, AlbertEncoder):
        return EncoderModule(model)
    return EncoderModule(model.encoder, model)


class Encoder(Export):
    """The encoder by TF Hub's contract, for further training."""

    name = "encoder"
    may_use_constants = False

    def load(self, path: str, unroll: bool = True) -> AlbertEncoder | AlbertPretrainer:
        """Load the pretrainer or, if there are no heads, the encoder."""
        return (load_pretrainer if has_heads(path) else load_encoder)(path, unroll=unroll)

    def encoder_of(self, model: AlbertEncoder | AlbertPretrainer) -> AlbertEncoder:
        """Return the encoder."""
        return model if isinstance(model, AlbertEncoder) else model.encoder

    def module(
        self, model: AlbertEncoder | AlbertPretrainer, tokenizer: Tokenizer, values: ExportSettings
    ) -> EncoderModule:
        """Return the module to save."""
        return _module(model)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: Any, values: ExportSettings
    ) -> OnnxOutputs:
        """Add `pooled_output`, float32 [B, H], and `sequence_output`, float32 [B, S, H]."""
        hidden, width = encoder.sequence_output(), encoder.config.hidden_size
        return {
            "pooled_output": (encoder.pooled_output(hidden), np.float32, ["B", width]),
            "sequence_output": (hidden, np.float32, ["B", "S", width]),
        }
