"""Warm-up requests and configuration files for TF Serving.

The server needs the TensorFlow Text operations of TF Serving 2.20 or later.
"""

import os
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.graph.buckets import widths_up_to
from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.text.tokenizer import Tokenizer

IMAGE = "tensorflow/serving:2.20.0"
WARM_UP = "tf_serving_warmup_requests"  # the name that the server looks for in assets.extra
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORDS = ("the", "a", "word", "的")  # warm-up texts repeat the first that is one piece

_FILES = {
    "model.config": """model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
""",
    "batching.config": """max_batch_size {{ value: 32 }}
batch_timeout_micros {{ value: 2000 }}
max_enqueued_batches {{ value: 100 }}
""",
    "monitoring.config": """prometheus_config {{
  enable: true
  path: "/monitoring/prometheus/metrics"
}}
""",
    "compose.yaml": """# docker compose up, in this folder. REST on 8501, gRPC on 8500; for others
# on the network, remove 127.0.0.1.
services:
  "{name}":
    image: {image}
    ports: ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]
    volumes:
      - "..:/models/{name}:ro"
      - ".:/config:ro"
    command:
      - --model_config_file=/config/model.config
      - --monitoring_config_file=/config/monitoring.config
      # Batches concurrent requests; docs/serving.md explains when that is safe.
      # - --enable_batching
      # - --batching_parameters_file=/config/batching.config
""",
}


def check_name(folder: str) -> None:
    """Check that the folder's name can name a model and a Docker Compose service.

    Raises:
      InputError: it cannot.
    """
    if not _NAME.fullmatch(name := os.path.basename(os.path.abspath(folder))):
        raise InputError(
            f"--output={folder}: the last part is the model's name and must consist of letters, "
            "digits, dots, dashes and underscores, with a letter or digit first. "
            f"Received: {name!r}."
        )


def write_configuration(folder: str) -> None:
    """Write FOLDER/serving/ without overwriting existing files, which the user may have edited."""
    name = os.path.basename(os.path.abspath(folder))
    for file_name, template in _FILES.items():
        path = os.path.join(folder, "serving", file_name)
        if not os.path.exists(path):
            with outputs.new_text(path) as file:
                file.write(template.format(name=name, image=IMAGE))


def write_warm_up(
    folder: str, signatures: Mapping[str, Any], tokenizer: Tokenizer, max_length: int
) -> None:
    """Write warm-up requests to `folder`, the SavedModel's assets.extra.

    There is a request to `serving_default` at each width up to `max_length`, that of the graph for
    the longest texts, and one to each other signature. The server answers them before it reports a
    version as available, so no user waits for the slow first request to a signature.
    """
    word = next((word for word in _WORDS if len(tokenizer.encode(word)) == 1), "a")
    widths = widths_up_to(max_length)
    with tf.io.TFRecordWriter(os.path.join(folder, WARM_UP)) as writer:
        for name, function in signatures.items():
            for width in widths if name == "serving_default" else widths[:1]:
                inputs = function.input_signature
                if name == "classify":
                    inputs = signatures["serving_default"].input_signature
                texts = _texts([s.name for s in inputs if s.dtype == tf.string], word, width)
                if name == "classify":
                    values = {"inputs": [_example(texts)]}
                else:
                    values = {s.name: _value(s, texts.get(s.name), width) for s in inputs}
                writer.write(_log(name, values))


def _texts(names: Sequence[str], word: str, width: int) -> dict[str, str]:
    """Return texts of equal lengths that fill a sequence of `width` pieces together."""
    count = width - 1 - min(len(names), 2)  # [CLS], and [SEP] after each of at most two parts
    shares = [(count + number) // len(names) for number in range(len(names))]
    return {name: " ".join([word] * max(1, n)) for name, n in zip(names, shares, strict=True)}


def _value(spec: tf.TensorSpec, text: str | None, width: int) -> np.ndarray:
    """Return one row for an input of a signature: `text`, or int32 values of length `width`.

    They are ones, but zeros for `input_type_ids`: a model may have only one type. Of texts in a
    second dimension there are two, and an int32 vector has their number.
    """
    if spec.dtype == tf.string:
        sizes = [2 if size is None else size for size in spec.shape[1:]]
        return np.broadcast_to(np.array(text, object), [1, *sizes])
    if spec.shape.rank == 1:
        return np.array([2], np.int32)
    shape = [1, *(width if size is None else size for size in spec.shape[1:])]
    return np.full(shape, spec.name != "input_type_ids", np.int32)


def _example(texts: Mapping[str, str]) -> bytes:
    example = tf.train.Example()
    for name, text in texts.items():
        example.features.feature[name].bytes_list.value.append(text.encode())
    return example.SerializeToString()


def load_messages() -> ModuleType:
    """Return the module of the server's log of requests.

    Raises:
      InputError: the package is missing; names the extra.
    """
    name = "tensorflow_serving.apis.prediction_log_pb2"
    return extras.load(name, "serving", "exporting a SavedModel")


def _log(signature: str, values: Mapping[str, Any]) -> bytes:
    log = load_messages().PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name, value in values.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return log.SerializeToString()
