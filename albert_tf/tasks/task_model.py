"""What task models share: an encoder below a head, and dropout that follows the step."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.encoder import INPUTS, AlbertEncoder
from albert_tf.layers import common


class TaskModel(tf_keras.Model):
    """An encoder with a task's head, for `compile` and `fit`.

    Compiled, its dropout is a function of (`dropout_seed`, step, replica): a run that is taken up
    again has the masks that it would have had.

    Args:
      encoder: an `AlbertEncoder`, or any layer of TF Hub's contract, such as a `hub.KerasLayer`.
      task: the `task` section of the config.
    """

    def __init__(self, encoder: tf_keras.layers.Layer, task: Any, name: str) -> None:
        super().__init__(name=name)
        self.encoder, self.task = encoder, task
        self.dropout_seed = 0

    def encode(
        self, inputs: Mapping[str, tf.Tensor], training: bool
    ) -> tuple[dict[str, tf.Tensor], common.DropoutKey | None]:
        """The encoder's outputs, and the key of the head's dropout, None where there is none."""
        own = {name: inputs[name] for name in INPUTS}
        if not training:
            return self.encoder(own, training=False), None
        key = self._dropout_key()
        if not isinstance(self.encoder, AlbertEncoder):  # it takes no key
            return self.encoder(own, training=True), key
        outputs = self.encoder(own, training=True, dropout_key=common.fold_in(key, 0))
        return outputs, common.fold_in(key, 1)

    def _dropout_key(self) -> common.DropoutKey:
        optimizer = getattr(self, "optimizer", None)
        if optimizer is None:
            return common.new_dropout_key()
        key = tf.stack([self.dropout_seed, tf.cast(optimizer.iterations, tf.int32)])
        replica = tf.distribute.get_replica_context()
        return common.fold_in(key, tf.cast(replica.replica_id_in_sync_group, tf.int32))

    def losses_of_fit(self) -> Any:
        """What `compile(loss=...)` takes."""
        raise NotImplementedError

    def create_weights(self) -> "TaskModel":
        """Creates every weight by one call on a batch of padding; returns self."""
        self({name: tf.zeros([1, 8], tf.int32) for name in INPUTS})
        return self


def head_dense(units: int, name: str, **kwargs: Any) -> tf_keras.layers.Dense:
    """A head's dense layer: truncated normal of 0.02 (google-research/albert), float32."""
    initializer = tf_keras.initializers.TruncatedNormal(stddev=0.02)
    return tf_keras.layers.Dense(
        units, kernel_initializer=initializer, dtype=tf.float32, name=name, **kwargs
    )
