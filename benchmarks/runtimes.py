"""Exported classifiers and regressors in the runtimes that users pick; see `workers.System`.

    python -m benchmarks.runtimes RUNTIME OUTPUT/VERSION CORES [VARIANT]

Each runtime is a function of the folder OUTPUT/VERSION of an export, of the number of cores, which
are also the only ones that its process has, and of a variant: the signature or the precision. The
runtimes that take ids get those of our tokenizer, padded to the longest text of the request. As a
process, which `workers.Worker` starts, a runtime answers texts: making the ids is timed.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from albert_tf.runtime.files import outputs
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.truncation import truncated_lengths
from benchmarks.workers import System, answer_requests

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def saved_model(folder: str, cores: int, signature: str = "serving_default") -> System:
    """Return a signature of a SavedModel, called from Python with raw text."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers its operations

    loaded = tf.saved_model.load(folder)

    def run(texts: Sequence[Any]) -> list:
        columns = {name: tf.constant(values) for name, values in _columns(texts).items()}
        outputs = loaded.signatures[signature](**columns)
        return _values({name: value.numpy() for name, value in outputs.items()})

    return System(run)


def c_api(folder: str, cores: int) -> System:
    """Return a SavedModel in TensorFlow's C API, without TensorFlow's Python package."""
    from examples.c_api import Session

    session = Session(folder)
    return System(lambda texts: _values(session.run(_columns(texts))))


def onnx_runtime(folder: str, cores: int) -> System:
    """Return an ONNX export in ONNX Runtime."""
    session = onnx_session(folder, cores)
    names = [output.name for output in session.get_outputs()]
    return System(
        lambda ids: _values(dict(zip(names, session.run(None, ids), strict=True))), Ids.of(folder)
    )


def onnx_session(folder: str, cores: int) -> "InferenceSession":
    """Return FOLDER/model.onnx in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = cores, 1
    # Or its idle threads would keep the cores busy while the next system is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options)


def openvino(folder: str, cores: int, precision: str = "f32") -> System:
    """Return an ONNX export in OpenVINO, compiled once for all shapes; `precision`: f32 or bf16."""
    import openvino

    hints = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": cores,
        "PERFORMANCE_HINT": "LATENCY",
    }
    path = os.path.join(folder, "model.onnx")
    model = openvino.Core().compile_model(path, "CPU", hints)

    def run(ids: Mapping[str, np.ndarray]) -> list:
        outputs = model(ids)
        ports = ((name, port) for port in model.outputs for name in port.names)
        return _values({name: outputs[port] for name, port in ports})

    return System(run, Ids.of(folder))


def litert(folder: str, cores: int) -> System:
    """Return a LiteRT export of any batch size and length."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(os.path.join(folder, "model.tflite"), num_threads=cores)
    run = interpreter.get_signature_runner()
    return System(lambda ids: _values(run(**ids)), Ids.of(folder))


RUNTIMES: dict[str, Callable[..., System]] = {
    "saved_model": saved_model,
    "c_api": c_api,
    "onnx_runtime": onnx_runtime,
    "openvino": openvino,
    "litert": litert,
}


class Ids:
    """The inputs of a model that takes ids, at most `seq_length` a row.

    `albert_tf.tasks.features` makes the same, but imports TensorFlow, which would share the process
    with the other runtimes.
    """

    def __init__(self, tokenizer: Tokenizer, seq_length: int) -> None:
        self._tokenizer, self._seq_length = tokenizer, seq_length

    @classmethod
    def of(cls, folder: str) -> Self:
        """Return the inputs of an export with tokenizer/ and config.json."""
        config = outputs.read_json(os.path.join(folder, "config.json"))
        seq_length = config["task"].get("seq_length") or config["model"]["max_positions"]
        return cls(load_tokenizer(os.path.join(folder, "tokenizer")), seq_length)

    def __call__(self, texts: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return the encoder's inputs, int32 [B, S], where S is the length of the longest text."""
        special = self._tokenizer.special
        first, *more = map(self._tokenizer.encode_batch, _columns(texts).values())
        second = more[0] if more else [[]] * len(first)
        limit = self._seq_length - (3 if more else 2)
        lengths = [np.array([len(ids) for ids in part]) for part in (first, second)]
        rows, types = [], []
        for a, b, n, m in zip(
            first, second, *truncated_lengths(lengths[0], lengths[1], limit), strict=True
        ):
            rows.append([special.cls, *a[:n], special.sep])
            types.append([0] * len(rows[-1]))
            if more:
                rows[-1] += [*b[:m], special.sep]
                types[-1] += [1] * (m + 1)
        masks = [[1] * len(row) for row in rows]
        return {
            "input_word_ids": _padded(rows, special.pad),
            "input_mask": _padded(masks, 0),
            "input_type_ids": _padded(types, 0),
        }


def _padded(rows: Sequence[list[int]], fill: int) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [fill] * (width - len(row)) for row in rows], np.int32)


def _columns(texts: Sequence[Any]) -> dict[str, list[str]]:
    """Return texts, or [first, second] of pairs, by the names of an export's inputs."""
    if isinstance(texts[0], str):
        return {"text": list(texts)}
    first, second = zip(*texts, strict=True)
    return {"text_a": list(first), "text_b": list(second)}


def _values(outputs: Mapping[str, Any]) -> list:
    """Return the probabilities of a classifier's outputs, the scores of a regressor's."""
    return np.asarray(outputs["probabilities" if "probabilities" in outputs else "score"]).tolist()


def main(runtime: str, folder: str, cores: str, *variant: str) -> None:
    """Load the export and answer requests."""

    def load() -> System:
        system = RUNTIMES[runtime](folder, int(cores), *variant)
        return System(lambda texts: system.run(system.prepare(texts)))

    answer_requests(load, int(cores))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
