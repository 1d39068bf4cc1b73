"""Run one system of `benchmarks.serving`: build its classifier, then answer lines of JSON texts.

python -m benchmarks.serving_worker SYSTEM PRESET TOKENIZER SEQ_LENGTH FOLDER CORES
"""

import contextlib
import functools
import importlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import runtimes
from benchmarks.workers import System, answer_requests

LABELS = ("no", "yes")


class Model(NamedTuple):
    """The classifier to build, with random weights.

    Attributes:
      preset: the name of its configuration.
      tokenizer: the file or folder of its tokenizer.
      seq_length: the largest number of pieces of a text.
    """

    preset: str
    tokenizer: str
    seq_length: int


Builder = Callable[[Model, str, int], System]  # the model, a folder for its files, CPU cores


def ours(model: Model, folder: str, cores: int, precision: str = "float32") -> System:
    """Return our export, called from Python."""
    _export(model, folder, precision)
    return runtimes.saved_model(folder, cores)


def elsewhere(load: Callable[[str, int], System], format: str, *libraries: str) -> Builder:
    """Return a builder that exports in another process, and needs `libraries`.

    Its own process does not import TensorFlow's Python package.
    """

    def build(model: Model, folder: str, cores: int) -> System:
        for library in libraries:
            importlib.import_module(library)
        exporter = multiprocessing.get_context("spawn").Process(
            target=_export, args=(model, folder, "float32", format)
        )
        exporter.start()
        exporter.join()
        if exporter.exitcode:
            raise ChildProcessError(f"The export ended with status {exporter.exitcode}.")
        return load(folder, cores)

    return build


def tf_models_official(model: Model, folder: str, cores: int) -> System:
    """Return Model Garden's SavedModel: text -> pieces -> padded to `seq_length` -> labels."""
    import tensorflow as tf
    import tf_keras
    from official.nlp.modeling import layers

    from albert_tf.models.config import AlbertConfig
    from albert_tf.text.tokenizer import load_tokenizer
    from benchmarks.systems.tf_models_official import encoder_like

    tokenizer = load_tokenizer(model.tokenizer)
    os.makedirs(folder)
    model_file = os.path.join(folder, "spiece.model")
    with open(model_file, "wb") as file:
        file.write(tokenizer.model)
    tokenize = layers.SentencepieceTokenizer(
        model_file_path=model_file, lower_case=True, strip_diacritics=True
    )
    special = tokenize.get_special_tokens_dict()
    pack = layers.BertPackInputs(model.seq_length, special_tokens_dict=special)
    config = AlbertConfig.from_preset(model.preset).replace(vocab_size=tokenizer.vocab_size)
    text = tf_keras.Input([], dtype=tf.string, name="text")
    packed = pack(tokenize(text))
    pooled = encoder_like(config)(
        [packed[name] for name in ("input_word_ids", "input_mask", "input_type_ids")]
    )["pooled_output"]
    probabilities = tf_keras.layers.Dense(len(LABELS), activation="softmax")(pooled)
    network = tf_keras.Model(text, probabilities)
    serve = tf.function(
        lambda text: {"probabilities": network(text)},
        input_signature=[tf.TensorSpec([None], tf.string, "text")],
    )
    path = os.path.join(folder, "1")
    tf.saved_model.save(network, path, signatures=serve)
    return runtimes.saved_model(path, cores)


def hf_torch(model: Model, folder: str, cores: int) -> System:
    """Return the torch classifier of transformers, fed with ids padded to the longest text."""
    import torch
    from transformers import AlbertConfig as HfConfig
    from transformers import AlbertForSequenceClassification

    from albert_tf.models.config import AlbertConfig
    from albert_tf.text.tokenizer import load_tokenizer
    from benchmarks.systems.hf_config import hf_config
    from benchmarks.workloads import Workload

    tokenizer = load_tokenizer(model.tokenizer)
    config = AlbertConfig.from_preset(model.preset).replace(vocab_size=tokenizer.vocab_size)
    keys = hf_config(Workload(config, 1, model.seq_length, 1))
    network = AlbertForSequenceClassification(HfConfig(**keys)).eval()
    torch.set_num_threads(cores)

    def classify(ids: dict[str, np.ndarray]) -> list[list[float]]:
        # In the order of the model's arguments: words, mask, types.
        with torch.inference_mode():
            return network(*map(torch.from_numpy, ids.values())).logits.softmax(-1).tolist()

    return System(classify, runtimes.Ids(tokenizer, model.seq_length))


SYSTEMS: dict[str, Builder] = {
    "ours": ours,
    "ours-c-api": elsewhere(runtimes.c_api, "saved_model"),
    "ours-bf16": functools.partial(ours, precision="mixed_bfloat16"),
    "tf-models-official": tf_models_official,
    "hf-torch": hf_torch,
    "onnx-runtime": elsewhere(runtimes.onnx_runtime, "onnx", "onnx", "onnxruntime"),
    "openvino": elsewhere(runtimes.openvino, "onnx", "onnx", "openvino"),
    "openvino-bf16": elsewhere(
        functools.partial(runtimes.openvino, precision="bf16"), "onnx", "onnx", "openvino"
    ),
}


def _export(model: Model, folder: str, precision: str, format: str = "saved_model") -> None:
    """Write our classifier to `folder`."""
    import tensorflow as tf

    from albert_tf.export.constant_stack import use_constants
    from albert_tf.export.format import Request
    from albert_tf.export.onnx import Onnx
    from albert_tf.models.config import AlbertConfig
    from albert_tf.models.encoder import AlbertEncoder
    from albert_tf.runtime import settings
    from albert_tf.runtime.devices import precision_policy
    from albert_tf.runtime.files import outputs
    from albert_tf.runtime.run_dir import RunDir
    from albert_tf.tasks.kind import ExportSettings
    from albert_tf.tasks.kinds import KINDS
    from albert_tf.text.tokenizer import load_tokenizer
    from finetuning.datasets import DATASETS

    tokenizer = load_tokenizer(model.tokenizer)
    config = AlbertConfig.from_preset(model.preset).replace(vocab_size=tokenizer.vocab_size)
    kind: Any = KINDS[DATASETS["sst-2"].kind]
    task = kind.settings(labels=LABELS, seq_length=model.seq_length)
    with precision_policy(precision):
        network = kind.model(AlbertEncoder(config), task).create_weights()
        for variable in network.variables:  # a graph leaves out additions of constant zeros
            if "bias" in variable.name:
                variable.assign(tf.random.normal(variable.shape, stddev=0.02))
        if format == "saved_model":
            use_constants(kind.encoder_of(network))
            module = kind.module(network, tokenizer, ExportSettings())
            tf.saved_model.save(module, folder, signatures=module.signatures())
            return
    with tempfile.TemporaryDirectory() as run:
        sections = {"model": settings.to_dict(config), "task": settings.to_dict(task)}
        outputs.write_json(RunDir(run).config_path, sections)
        Onnx().write(network, Request(kind, RunDir(run), tokenizer, ExportSettings()), folder)


def main(name: str, preset: str, tokenizer: str, seq_length: str, folder: str, cores: str) -> None:
    """Build the system and answer requests."""
    model = Model(preset, tokenizer, int(seq_length))
    answer_requests(lambda: SYSTEMS[name](model, folder, int(cores)), int(cores))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
