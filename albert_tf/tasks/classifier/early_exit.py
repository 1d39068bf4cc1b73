"""Early exit from the encoder once a text's label is stable (arXiv 2006.04152, PABEE).

In an encoder whose layers share one block, the task's own pooler and head apply to every layer's
output.
"""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.models.config import sharing_plan
from albert_tf.models.layers.attention import additive_mask
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import SequenceClassifier

Outputs = dict[str, tf.Tensor]


class EarlyExit:
    """A classifier that takes the encoder's inputs, int32 [n, S], and stops early for each row.

    Outputs: `values`, probabilities float32 [n, C]; `depth` int32 [n], the number of layers used
    for each row, at least `patience` + 1. Rows that have left are not computed any further, and no
    row affects another.

    Args:
      model: the fine-tuned classifier.
      patience: number of layers in a row that must give the same label as the layer before.

    Raises:
      InputError: `patience` is too large for any row to leave early or is not positive, or the
        layers do not share one block.
    """

    def __init__(self, model: SequenceClassifier, patience: int) -> None:
        config = model.encoder.config
        if len(set(sharing_plan(config))) > 1:
            raise InputError(
                "--patience needs a model whose layers all share one block (model.sharing=all, "
                f"model.num_groups=1). Received: {config.sharing}, {config.num_groups}. Leave it "
                "out."
            )
        if config.num_layers < 3:
            raise InputError(
                f"--patience needs a model of at least 3 layers. Received: {config.num_layers} "
                "layers. Leave it out."
            )
        if not 0 < patience < config.num_layers - 1:
            raise InputError(
                f"--patience must be between 1 and {config.num_layers - 2}, the model's number of "
                f"layers minus two. Received: {patience}."
            )
        self._model, self._patience = model, patience

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> Outputs:
        """Return the outputs that the class describes."""
        encoder = self._model.encoder
        x = encoder.embeddings(inputs)  # [n, S, H]
        count, classes = tf.shape(x)[0], len(self._model.task.labels)
        (run,) = encoder.stack.inference_layers()

        def layer(number: tf.Tensor, active: Outputs, results: Outputs) -> tuple:
            x = run(active["x"], active["mask"], None)
            return number + 1, *self._update(number, active | {"x": x}, results)

        active = {
            "row": tf.range(count),
            "x": x,
            "mask": additive_mask(inputs["input_mask"]),
            "label": tf.fill([count], tf.constant(-1, tf.int64)),  # no label yet
            "same": tf.zeros([count], tf.int32),  # layers in a row with this label unchanged
        }
        results = {"values": tf.zeros([count, classes]), "depth": tf.zeros([count], tf.int32)}
        active_shapes = {
            name: tf.TensorShape([None, *tensor.shape[1:]]) for name, tensor in active.items()
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
                {name: tensor.shape for name, tensor in results.items()},
            ),
            parallel_iterations=1,
        )[2]

    def _update(
        self, number: tf.Tensor, active: Outputs, results: Outputs
    ) -> tuple[Outputs, Outputs]:
        """Return the rows that stay after layer `number`, and the results of all rows so far."""
        encoder = self._model.encoder
        hidden = encoder.stack.normalized(active["x"])
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
        return {
            name: tf.boolean_mask(tensor, is_active) for name, tensor in active.items()
        }, results
