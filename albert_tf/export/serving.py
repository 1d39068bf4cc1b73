"""What TF Serving takes beside a SavedModel: warm-up requests and configuration.

The server needs TensorFlow Text's operations, those of TF Serving 2.20 or later.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

from albert_tf import outputs

IMAGE = "tensorflow/serving:2.20.0"
WARM_UP = "tf_serving_warmup_requests"  # the name that the server looks for in assets.extra
_WORDS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512)  # in the texts of the warm-up

_FILES = {
    "models.config": """model_config_list {{
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
num_batch_threads {{ value: {threads} }}
pad_variable_length_inputs: true
""",
    "monitoring.config": """prometheus_config {{
  enable: true
  path: "/monitoring/prometheus/metrics"
}}
""",
    "compose.yaml": """# docker compose up, in this folder. REST on 8501, gRPC on 8500.
services:
  {name}:
    image: {image}
    ports: ["8500:8500", "8501:8501"]
    volumes:
      - "..:/models/{name}:ro"
      - ".:/config:ro"
    command:
      - --model_config_file=/config/models.config
      - --monitoring_config_file=/config/monitoring.config
      - --enable_batching
      - --batching_parameters_file=/config/batching.config
""",
}


def write_configuration(folder: str) -> None:
    """Writes FOLDER/serving/: files that exist are yours and stay as they are."""
    name = os.path.basename(os.path.abspath(folder))
    os.makedirs(os.path.join(folder, "serving"), exist_ok=True)
    for file_name, template in _FILES.items():
        path = os.path.join(folder, "serving", file_name)
        if not os.path.exists(path):
            with outputs.new_file(path) as partial, open(partial, "w", encoding="utf-8") as file:
                file.write(template.format(name=name, image=IMAGE, threads=os.cpu_count() or 1))


def write_warm_up(folder: str, specs: Sequence[tf.TensorSpec], longest: int) -> None:
    """Writes requests of the signature `serving_default`, from one word to the `longest`.

    The server answers them before it reports a version as available, so that no user waits for what
    the first request of a width costs.

    Args:
      folder: the SavedModel's assets.extra.
      specs: the signature's inputs.
    """
    with tf.io.TFRecordWriter(os.path.join(folder, WARM_UP)) as writer:
        for values in _requests(specs, longest):
            request = predict_pb2.PredictRequest(
                model_spec=model_pb2.ModelSpec(signature_name="serving_default"),
                inputs={name: tf.make_tensor_proto(value) for name, value in values.items()},
            )
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def _requests(specs: Sequence[tf.TensorSpec], longest: int) -> Iterator[dict[str, np.ndarray]]:
    for words in (count for count in _WORDS if count <= longest):
        text = np.array([" ".join(["word"] * words)], object)
        yield {
            spec.name: np.broadcast_to(text, [1, *spec.shape[1:]])
            if spec.dtype == tf.string
            else np.ones([1, words], np.int32)
            for spec in specs
        }
