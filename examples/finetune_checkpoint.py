"""Fine-tune a checkpoint on a table of texts and labels, in your own script.

python -m examples.finetune_checkpoint runs/first reviews/train.tsv runs/mine
"""

import csv
import os
import sys

import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.optimization import LinearWarmupLinearDecay
from albert_tf.tasks.kinds import KINDS


def main(
    init: str, table: str, saved: str, epochs: int = 3, batch_size: int = 32, rate: float = 1e-4
) -> tf_keras.Model:
    """Train on `table` (a header, then text, tab, label in each line) and save a run.

    Use rate=1e-3 for small models.
    """
    lines = csv.reader(open(table, encoding="utf-8", newline=""), delimiter="\t")
    _, *rows = filter(None, lines)  # without the header and blank lines
    labels = tuple(sorted({label for _, label in rows}))
    examples = [albert_tf.TextExample(text, label=labels.index(label)) for text, label in rows]

    kind = KINDS["classifier"]
    task = kind.settings(labels=labels, seq_length=64)
    tokenizer = albert_tf.load_tokenizer(init)
    features = kind.featurize(examples, tokenizer, task)
    for note in features.notes():  # such as on texts longer than seq_length
        print("note:", note)
    model = kind.model(albert_tf.load_encoder(init), task).create_weights()

    steps = epochs * -(-len(examples) // batch_size)
    schedule = LinearWarmupLinearDecay(rate, warmup_steps=steps // 10, decay_steps=steps)
    optimizer = tf_keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0)
    model.compile(optimizer, model.training_losses(), ["accuracy"])
    batches = tf.data.Dataset.range(len(examples)).shuffle(len(examples), seed=0).batch(batch_size)
    model.fit(batches.map(lambda units: _batch(features, units)), epochs=epochs)
    albert_tf.save_model(model, saved, tokenizer)
    return model


def _batch(features: albert_tf.Features, units: tf.Tensor) -> tuple:
    inputs, targets = features.batch(units)  # padded to the longest text of the batch
    return inputs, targets["label"]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        usage = "runs/first reviews/train.tsv runs/mine"
        sys.exit(f"usage: python -m examples.finetune_checkpoint {usage}")
    if os.path.exists(sys.argv[3]):
        sys.exit(f"{sys.argv[3]} exists: name a new folder")
    main(*sys.argv[1:])
