"""Early exit: a text leaves the encoder when its label has settled (arXiv 2006.04152, PABEE).

Every layer of an encoder that shares one block speaks the language of the last, so that the task's
own pooler and head read each of them.
"""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.models.layers.attention import additive_mask
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier import SequenceClassifier

Outputs = dict[str, tf.Tensor]


class EarlyExit:
    """The encoder's inputs int32 [n, S] -> what a classifier says, and when.

    Its outputs: `values`, probabilities float32 [n, C]; `depth` int32 [n], the layers that each
    row went through: one more than `patience` at least. Rows that have left are not computed any
    further, and no row is influenced by another.

    Args:
      patience: the layers in a row whose label must be that of the layer before.

    Raises:
      InputError: a `patience` that no row could leave with, or layers that differ.
    """

    def __init__(self, model: SequenceClassifier, patience: int) -> None:
        config = model.encoder.config
        if not 0 < patience < config.num_layers - 1:
            raise InputError(
                f"--patience must be between 1 and {config.num_layers - 2}, two less than the "
                f"model has layers. Received: {patience}."
            )
        if len(model.encoder.stack.blocks) > 1:
            raise InputError(
                "--patience needs a model whose layers all share one block (model.sharing=all, "
                f"model.num_groups=1). Received: {config.sharing}, {config.num_groups}."
            )
        self._model, self._patience = model, patience
        (self._block,) = model.encoder.stack.blocks

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> Outputs:
        """See the class."""
        encoder = self._model.encoder
        x = encoder.embeddings(inputs)  # [n, S, H]
        count, classes = tf.shape(x)[0], len(self._model.task.labels)
        weights = self._block.attention.weight_tensors(), self._block.feed_forward.weight_tensors()

        def layer(number: tf.Tensor, active: Outputs, results: Outputs) -> tuple:
            x = self._block.compute(*weights, active["x"], active["mask"], None, False)
            return number + 1, *self._update(number, active | {"x": x}, results)

        active = {
            "row": tf.range(count),
            "x": x,
            "mask": additive_mask(inputs["input_mask"]),
            "label": tf.fill([count], tf.constant(-1, tf.int64)),  # there was none before
            "same": tf.zeros([count], tf.int32),  # layers in a row that have not changed it
        }
        results = {"values": tf.zeros([count, classes]), "depth": tf.zeros([count], tf.int32)}
        active_shapes = {
            name: tf.TensorShape([None, *each.shape[1:]]) for name, each in active.items()
        }
        return tf.while_loop(
            lambda number, active, _: (
                (number <= encoder.config.num_layers) & (tf.size(active["row"]) > 0)
            ),
            layer,
            (tf.constant(1), active, results),
            (
                tf.TensorShape([]),
                active_shapes,
                {name: each.shape for name, each in results.items()},
            ),
            parallel_iterations=1,
        )[2]

    def _update(
        self, number: tf.Tensor, active: Outputs, results: Outputs
    ) -> tuple[Outputs, Outputs]:
        """Those who stay after layer `number`, and what is known of all."""
        encoder = self._model.encoder
        hidden = encoder.stack.normalized(active["x"], training=False)
        values = tf.nn.softmax(self._model.head(encoder.pool(hidden)))
        label, rows = tf.argmax(values, axis=1), active["row"][:, tf.newaxis]
        same = tf.where(tf.equal(label, active["label"]), active["same"] + 1, 0)
        depth = tf.fill([tf.size(rows)], number)
        results = {
            "values": tf.tensor_scatter_nd_update(results["values"], rows, values),
            "depth": tf.tensor_scatter_nd_update(results["depth"], rows, depth),
        }
        active = active | {"label": label, "same": same}
        is_active = same < self._patience
        return {name: tf.boolean_mask(each, is_active) for name, each in active.items()}, results
