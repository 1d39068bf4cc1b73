"""Early exit: a text leaves the encoder when its label has settled (arXiv 2006.04152, PABEE).

Every layer of an encoder that shares one block speaks the language of the last, so that the task's
own pooler and head read each of them.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.layers.attention import additive_mask
from albert_tf.tasks.classifier import SequenceClassifier

Outputs = dict[str, tf.Tensor]


def early_exit(
    model: SequenceClassifier, patience: int
) -> Callable[[Mapping[str, tf.Tensor]], Outputs]:
    """A function: the encoder's inputs int32 [n, S] -> what the classifier says, and when.

    Its outputs: `values`, probabilities float32 [n, C]; `depth` float32 [n], the layers that each
    row went through: one more than `patience` at least. Rows that have left are not computed any
    further, and no row is influenced by another.

    Raises:
      InputError: a `patience` that no row could leave with, or layers that differ.
    """
    encoder, config = model.encoder, model.encoder.config
    if not 0 < patience < config.num_layers - 1:
        raise InputError(
            f"--patience must be between 1 and {config.num_layers - 2}, two less than the model "
            f"has layers. Received: {patience}."
        )
    if len(encoder.stack.blocks) > 1:
        raise InputError(
            "--patience needs a model whose layers all share one block (model.sharing=all, "
            f"model.num_groups=1). Received: {config.sharing}, {config.num_groups}."
        )
    (block,) = encoder.stack.blocks

    def run(inputs: Mapping[str, tf.Tensor]) -> Outputs:
        x = encoder.embeddings(inputs)  # [n, S, H]
        count = tf.shape(x)[0]
        weights = block.attention.weights_now(), block.feed_forward.weights_now()

        def layer(number: tf.Tensor, inside: Outputs, done: Outputs) -> tuple:
            x = block.compute(*weights, inside["x"], inside["mask"], None, False)
            values = tf.nn.softmax(model.head(encoder.pool(x)))  # [rows, C]
            label, rows = tf.argmax(values, axis=1), inside["row"][:, tf.newaxis]
            same = tf.where(tf.equal(label, inside["label"]), inside["same"] + 1, 0)
            depth = tf.fill([tf.size(rows)], tf.cast(number, tf.float32))
            done = {
                "values": tf.tensor_scatter_nd_update(done["values"], rows, values),
                "depth": tf.tensor_scatter_nd_update(done["depth"], rows, depth),
            }
            inside = inside | {"x": x, "label": label, "same": same}
            return (
                number + 1,
                {k: tf.boolean_mask(v, same < patience) for k, v in inside.items()},
                done,
            )

        inside = {
            "row": tf.range(count),
            "x": x,
            "mask": additive_mask(inputs["input_mask"]),
            "label": tf.fill([count], tf.constant(-1, tf.int64)),  # there was none before
            "same": tf.zeros([count], tf.int32),  # layers in a row that have not changed it
        }
        done = {"values": tf.zeros([count, len(model.task.labels)]), "depth": tf.zeros([count])}
        some = {name: tf.TensorShape([None, *each.shape[1:]]) for name, each in inside.items()}
        return tf.while_loop(
            lambda number, inside, _: (number <= config.num_layers) & (tf.size(inside["row"]) > 0),
            layer,
            (tf.constant(1), inside, done),
            (tf.TensorShape([]), some, {name: each.shape for name, each in done.items()}),
            parallel_iterations=1,
        )[2]

    return run
