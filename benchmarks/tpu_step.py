"""Run `pretraining.tpu_check` on tf-models-official's model, with its flags but --global_batch.

    python -m benchmarks.tpu_step --preset=albert-xxlarge-v2 --batch=8 --topology=v5e

It prints memory and estimated time. The model is its AlbertEncoder and MaskedLM head, with the
loss, clipping and optimizer of our step. It has no rematerialization and is built without dropout.
"""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf
import tf_keras
from official.nlp.modeling import layers

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from benchmarks.systems.tf_models_official import encoder_like
from pretraining import tpu_check
from pretraining.pjrt.compiled import CompiledSize
from pretraining.tpu.step import Step
from pretraining.tpu_check import TpuCheckOptions


class OfficialPretrainer(tf_keras.Model):
    """Model Garden's encoder and heads, with the inputs and outputs of `AlbertPretrainer`."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.encoder = encoder_like(config)
        self.mlm_head = layers.MaskedLM(
            self.encoder.get_embedding_table(),
            activation=lambda x: tf.nn.gelu(x, approximate=True),
        )
        self.pair_head = tf_keras.layers.Dense(2, dtype=tf.float32)

    @tf.autograph.experimental.do_not_convert
    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        training: bool = False,
        dropout_key: tf.Tensor | None = None,
        labels: Mapping[str, tf.Tensor] | None = None,
        kernels: str = "auto",
    ) -> dict[str, tf.Tensor]:
        """Return the logits of both heads; `dropout_key`, `labels` and `kernels` are ignored."""
        outputs = self.encoder([inputs[name] for name in INPUTS], training=training)
        logits = self.mlm_head(outputs["sequence_output"], inputs["masked_lm_positions"])
        return {
            "mlm_logits": tf.cast(logits, tf.float32),
            "pair_logits": self.pair_head(outputs["pooled_output"]),
        }

    def create_weights(self) -> "OfficialPretrainer":
        """Create every weight by one call on a batch of padding; return self."""
        ids = {name: tf.zeros([1, 1], tf.int32) for name in (*INPUTS, "masked_lm_positions")}
        self(ids)
        return self


def main(options: TpuCheckOptions) -> int:
    """Run `tpu_check.main` on the model of tf-models-official."""
    if options.global_batch:
        raise InputError(
            "--global_batch must be omitted, since tf-models-official's model cannot recompute its "
            f"layers. Received: {options.global_batch}. Try --batch with "
            "--set=loop.accumulation_steps=N."
        )
    options = dataclasses.replace(options, set=("model.rematerialize=false", *options.set))
    if options.step(options.preset).model.rematerialize:
        raise InputError(
            "`model.rematerialize` must be false: tf-models-official's model cannot recompute "
            "its layers. Received: True. Omit it."
        )
    return tpu_check.main(options, _compile, "tf-models-official")


def _compile(step: Step, topology: str) -> CompiledSize:
    return tpu_check.compile_step(step, topology, OfficialPretrainer)


if __name__ == "__main__":
    commands.run(main, TpuCheckOptions, __doc__)
