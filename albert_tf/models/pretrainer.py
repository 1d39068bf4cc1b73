"""AlbertPretrainer: the encoder with the heads of its pretraining objectives."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import has_heads, is_saved_model, load_config, read_checkpoint
from albert_tf.models.config import AlbertConfig
from albert_tf.models.configured_model import ConfiguredModel, Outputs
from albert_tf.models.encoder import INPUTS, AlbertEncoder, as_int32, call_symbolically
from albert_tf.models.head import HEADS, POOLED_OUTPUT, Head, load_heads, parse_heads
from albert_tf.models.kernels.interface import Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.heads import MlmHead, PairHead
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir


@tf_keras.saving.register_keras_serializable("albert_tf")
class AlbertPretrainer(ConfiguredModel):
    """The encoder and its heads: by default the MLM head and the pair head (paper section 3.1).

    >>> pretrainer = albert_tf.load_pretrainer("albert-mini-en")
    >>> tokenizer = albert_tf.load_tokenizer("albert-mini-en")
    >>> ids = tf.constant([[2, *tokenizer.encode("The ship sailed across the"), 4, 9, 3]])  # [MASK]
    >>> inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    >>> logits = pretrainer(inputs | {"masked_lm_positions": tf.constant([[6]])})["mlm_logits"]
    >>> tokenizer.decode([int(tf.argmax(logits[0, 0]))])
    'sea'

    Inputs: those of the encoder, and `masked_lm_positions` int32 [B, P].
    Outputs: those of the encoder, `mlm_logits` float32 [B, P, V] and `pair_logits` float32 [B, 2].
    Other `heads` of the pooled output have logits `NAME_logits` [B, num_classes].

    With `labels`, a dict of `masked_lm_ids` and `masked_lm_weights` [B, P], `mlm_sums` float32 [2]
    replaces `mlm_logits`: the weighted sums of cross-entropies and of correct predictions. No loss
    may then depend on padded positions (`skip_padding` of `AlbertEncoder`).
    """

    def __init__(
        self,
        config: AlbertConfig,
        unroll: bool = True,
        heads: Sequence[Head] = HEADS,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, unroll, **kwargs)
        self.heads = tuple(heads)
        self.encoder = AlbertEncoder(config, unroll, name="encoder", dtype=self.dtype_policy)
        for head in self.heads:
            classes, name = head.num_classes, head.layer
            layer = PairHead(config, classes, name) if classes else MlmHead(config, name)
            setattr(self, name, layer)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"heads": [settings.to_dict(head) for head in self.heads]}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """Build the model that `get_config` describes, with new weights."""
        heads = parse_heads(config.get("heads"))
        return super().from_config({**config, "heads": heads}, custom_objects)

    @classmethod
    def load(cls, path: str, **kwargs: Any) -> Self:
        """Load a trained pretrainer: see `load_pretrainer`."""
        path = pretrained.locate(path)
        require_heads(path)
        config = load_config(path)
        if not has_heads(path, some=True):
            raise InputError(
                f"{path!r} is an encoder and has no pretraining heads: pass the run that it was "
                "initialized from, or load it with albert_tf.load_encoder."
            )
        pretrainer = cls(config, **{"heads": load_heads(path)} | kwargs).create_weights()
        read_checkpoint(tf.train.Checkpoint(model=pretrainer), path)
        return pretrainer

    def as_run(self) -> tuple[tf.train.Checkpoint, dict[str, Any]]:
        """Return what a run folder holds; config.json names other heads than ALBERT's own."""
        weights, sections = super().as_run()
        if self.heads != HEADS:
            sections["heads"] = [settings.to_dict(head) for head in self.heads]
        return weights, sections

    def layers_in_order(self) -> tuple[tf_keras.layers.Layer, ...]:
        """Return the encoder and the heads; another order would draw other initial weights."""
        pooled_first = sorted(self.heads, key=lambda head: head.input != POOLED_OUTPUT)
        return self.encoder, *(getattr(self, head.layer) for head in pooled_first)

    def run(  # type: ignore[override]  # its own option
        self,
        ops: Kernels,
        inputs: Mapping[str, tf.Tensor],
        training: bool,
        dropout_key: common.DropoutKey | None,
        labels: Mapping[str, tf.Tensor] | None = None,
    ) -> Outputs:
        """Run the encoder and the heads with a set of operations; see the class for the others."""
        inputs = as_int32(inputs, (*INPUTS, "masked_lm_positions"))
        encoder_inputs = {name: inputs[name] for name in INPUTS}
        skip_padding = labels is not None  # losses with labels ignore padded positions
        outputs = self.encoder.run(
            ops, encoder_inputs, training, dropout_key, skip_padding=skip_padding
        )
        for head in self.heads:
            if head.input == POOLED_OUTPUT:
                layer = getattr(self, head.layer)
                outputs[head.logits] = layer(outputs["pooled_output"])
        table = self.encoder.embeddings.word_embeddings
        # The gradient of these rows is not converted as a whole, unlike that of sequence_output.
        rows = outputs["encoder_outputs"][-1], inputs["masked_lm_positions"], table
        if labels is None:
            outputs["mlm_logits"] = self.mlm_head(*rows)
        else:
            targets = tf.cast(labels["masked_lm_ids"], tf.int32), labels["masked_lm_weights"]
            # The exponent range of float16 is too small for gradients of logits.
            dtype = tf.bfloat16 if self.compute_dtype == "bfloat16" else tf.float32
            outputs["mlm_sums"] = self.mlm_head.sums(ops, *rows, *targets, dtype)
        return outputs

    def create_weights(self) -> Self:
        """Create every weight by one symbolic call; return self."""
        call_symbolically(self, [*INPUTS, "masked_lm_positions"])
        self.encoder.create_weights()  # Keras can save it by itself only after a call of its own
        return self


def require_heads(path: str) -> None:
    """Check that a folder is not one of those that have no pretraining heads.

    Raises:
      InputNotFoundError: it has no config.json.
      InputError: it is an export or a fine-tuned run.
    """
    if is_saved_model(path):
        raise InputError(
            f"{path!r} is an export and has no pretraining heads: pass the run that it was "
            "exported from."
        )
    kind = RunDir(path).kind() or "pretraining"
    if kind != "pretraining":
        raise InputError(
            f"{path!r} was fine-tuned for {kind} and has no pretraining heads: pass the run that "
            "it was initialized from."
        )


def load_pretrainer(path: str | os.PathLike[str], **kwargs: Any) -> AlbertPretrainer:
    """Load the encoder with its pretraining heads from a run folder or a converted folder.

    >>> pretrainer = albert_tf.load_pretrainer("albert-mini-en")  # called as in `AlbertPretrainer`
    >>> pretrainer.encoder.config.vocab_size
    16132

    Args:
      path: the folder, or the name of an included model.
      kwargs: arguments of `AlbertPretrainer`, such as `dtype="mixed_bfloat16"`.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: the weights are damaged or do not match config.json, or `path` is an export, a
        fine-tuned run or an encoder, which have no pretraining heads.
    """
    return AlbertPretrainer.load(os.fspath(path), **kwargs)
