"""Score sentence embeddings on STS-B without training on its scores, beside TF-IDF.

    python -m benchmarks.cosine --export=export/embedding --data_dir=glue/STS-B

The export is a SavedModel or, of --format=onnx, a model that runs in ONNX Runtime on one core. The
output is a JSON line for each similarity, with its correlations with the dev scores in percent:

- embedding: the cosine of the export's embeddings,
- centered embedding: the same after subtracting the mean over the training sentences,
- tf-idf: the cosine of TF-IDF vectors, fitted on the training sentences.
"""

import dataclasses
import json
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of the export
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.text_functions import in_batches
from benchmarks.load_targets import newest_export
from benchmarks.runtimes import Ids, onnx_session
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.datasets.scores import metrics
from finetuning.kinds.baselines.text_features import tf_idf

BATCH = 64


@dataclasses.dataclass(frozen=True)
class CosineOptions(commands.CommandOptions):
    """The command line of `benchmarks.cosine`."""

    export: str = commands.option("the folder OUTPUT of an export of the kind embedding", path=True)
    data_dir: str = commands.option("the folder of STS-B's files", path=True)
    dry_run: bool = commands.option("check the options and the export, and read the data", False)


def main(options: CosineOptions) -> None:
    """Measure and print the lines."""
    folder = newest_export(options.export, ("saved_model.pb", "model.onnx"))
    is_onnx = os.path.isfile(os.path.join(folder, "model.onnx"))
    if (names := (onnx_outputs_of if is_onnx else outputs_of)(folder)) != ["embedding"]:
        raise InputError(
            f"--export={options.export} must be an export of the kind embedding. Its outputs are "
            f"{', '.join(names)}."
        )
    data = DATASETS["sts-b"].read(Source(options.data_dir))
    dev = data.dev["dev"]
    first, second = [example.first for example in dev], [example.second for example in dev]
    training = [text for example in data.train for text in (example.first, example.second)]
    if options.dry_run:
        print(f"{len(dev):,} pairs of sentences, {len(training):,} training sentences")
        return
    answers = np.array([example.label for example in dev])
    run = _onnx(folder) if is_onnx else _saved_model(folder)

    def embed(texts: list[str]) -> np.ndarray:
        return in_batches(run, texts, BATCH)

    a, b, mean = embed(first), embed(second), embed(training).mean(axis=0)
    similarities = {
        "embedding": cosine(a, b),
        "centered embedding": cosine(a - mean, b - mean),
        "tf-idf": tf_idf_cosine(training, first, second),
    }
    for name, values in similarities.items():
        correlations = {
            metric: round(100 * metrics.METRICS[metric](answers, values), 1)
            for metric in ("pearson", "spearman")
        }
        print(json.dumps({"benchmark": "cosine", "similarity": name} | correlations), flush=True)


def outputs_of(folder: str) -> list[str]:
    """Return the names of the default signature's outputs, without loading the SavedModel."""
    with open(os.path.join(folder, "saved_model.pb"), "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    return sorted(model.meta_graphs[0].signature_def["serving_default"].outputs)


def onnx_outputs_of(folder: str) -> list[str]:
    """Return the names of the outputs of an ONNX export."""
    return [output.name for output in onnx_session(folder, 1).get_outputs()]


def _saved_model(folder: str) -> Callable[[list[str]], np.ndarray]:
    model = tf.saved_model.load(folder)  # holds the variables of its signature
    return lambda texts: model.signatures["serving_default"](text=tf.constant(texts))[
        "embedding"
    ].numpy()


def _onnx(folder: str) -> Callable[[list[str]], np.ndarray]:
    session, ids = onnx_session(folder, 1), Ids.of(folder)
    return lambda texts: session.run(["embedding"], ids(texts))[0]


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosines of the rows of two matrices [N, H]; 0 for a row of zeros."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / np.maximum(lengths, np.finfo(lengths.dtype).tiny)


def tf_idf_cosine(training: list[str], first: list[str], second: list[str]) -> np.ndarray:
    """Return the cosines of the TF-IDF vectors of pairs of texts, fitted on `training`."""
    vectors = tf_idf(training)
    return np.asarray(vectors(first).multiply(vectors(second)).sum(axis=1)).ravel()


if __name__ == "__main__":
    commands.run(main, CosineOptions, __doc__)
