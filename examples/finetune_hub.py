"""Fine-tune an exported encoder through TF Hub, in plain tf_keras without this package.

python -m examples.finetune_hub export/preprocessing/1 export/encoder/1 reviews/train.tsv
"""

import csv
import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401  the preprocessing's operations
import tf_keras


def main(
    preprocessing: str, encoder: str, table: str, epochs: int = 3, rate: float = 1e-4
) -> tf_keras.Model:
    """Train on `table`: a header, then text, tab, label in each line.

    The preprocessing truncates long texts. Use rate=1e-3 for small models.
    """
    lines = csv.reader(open(table, encoding="utf-8", newline=""), delimiter="\t")
    _, *rows = filter(None, lines)  # without the header and blank lines
    texts, answers = zip(*rows, strict=True)
    labels, numbers = np.unique(answers, return_inverse=True)
    inputs = hub.load(preprocessing)(tf.constant(texts))  # tokenize once, before training

    ids = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in inputs}
    pooled = hub.KerasLayer(encoder, trainable=True)(ids)["pooled_output"]
    logits = tf_keras.layers.Dense(len(labels))(tf_keras.layers.Dropout(0.1)(pooled))
    model = tf_keras.Model(ids, logits)

    optimizer = tf_keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, ["accuracy"])
    model.fit(inputs, numbers, batch_size=32, epochs=epochs)
    return model


if __name__ == "__main__":
    if len(sys.argv) != 4:
        usage = "export/preprocessing/1 export/encoder/1 reviews/train.tsv"
        sys.exit(f"usage: python -m examples.finetune_hub {usage}")
    main(*sys.argv[1:])
