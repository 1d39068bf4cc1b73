r"""Train a model from text to label, and save it with the preprocessing in its graph.

Usage:

    python -m examples.finetune_raw_text export/preprocessing/1 export/encoder/1 \
        reviews/train.tsv export/reviews/1
"""

import csv
import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401  the preprocessing's operations
import tf_keras


def main(
    preprocessing: str, encoder: str, table: str, saved: str, epochs: int = 3, rate: float = 1e-4
) -> None:
    """Train on `table` (a header, then text, tab, label in each line) and save the model.

    The preprocessing truncates long texts. Use rate=1e-3 for small models.
    """
    lines = csv.reader(open(table, encoding="utf-8", newline=""), delimiter="\t")
    _, *rows = filter(None, lines)  # without the header and blank lines
    texts, answers = zip(*rows, strict=True)
    labels, numbers = np.unique(answers, return_inverse=True)

    text = tf_keras.Input([], dtype=tf.string, name="text")
    ids = hub.KerasLayer(preprocessing)(text)
    pooled = hub.KerasLayer(encoder, trainable=True)(ids)["pooled_output"]
    logits = tf_keras.layers.Dense(len(labels))(tf_keras.layers.Dropout(0.1)(pooled))
    model = tf_keras.Model(text, logits)

    optimizer = tf_keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, ["accuracy"])
    model.fit(np.array(texts, object), numbers, batch_size=32, epochs=epochs)
    print("an answer:", texts[0], labels[model.predict(tf.constant(texts[:1])).argmax()])
    model.save(saved)  # its input is text, so serving needs nothing else


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack characters
    if len(sys.argv) != 5:
        usage = "export/preprocessing/1 export/encoder/1 reviews/train.tsv saved"
        sys.exit(f"usage: python -m examples.finetune_raw_text {usage}")
    main(*sys.argv[1:])
