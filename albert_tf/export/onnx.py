"""Models of every kind as ONNX: the inputs and outputs of their exports' signature `tokens`."""

import os
from typing import Any

from albert_tf.export.format import Format, Request
from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Graph, import_onnx
from albert_tf.graph.onnx.int8_graph import Int8Graph
from albert_tf.runtime.files import outputs
from albert_tf.tasks.kind import Export, ExportSettings

_GRAPHS = {"none": Graph, "int8": Int8Graph}
DEFAULTS = ExportSettings()


class Onnx(Format):
    """ONNX."""

    about = "ids in, for ONNX Runtime and OpenVINO"
    file = "model.onnx"
    quantizations = tuple(_GRAPHS)

    def can_write(self, export: Export) -> bool:
        """Return True if it has the outputs of an ONNX model."""
        return export.has_onnx

    def check(self, folder: str) -> None:
        """Check also that the package onnx is there."""
        super().check(folder)
        import_onnx()

    def build(self, request: Request) -> Any:
        """Return the model."""
        return request.export.load(request.run.path)

    def write(self, built: Any, request: Request, folder: str) -> None:
        """Write model.onnx, tokenizer/ and config.json; see `onnx_model`."""
        model = onnx_model(request.export, built, request.values, request.quantization)
        content = model.SerializeToString()
        with outputs.new_folder(folder) as partial:
            with open(os.path.join(partial, self.file), "wb") as file:
                file.write(content)
            request.write_beside(partial)


def onnx_model(
    export: Export,
    model: Any,
    values: ExportSettings = DEFAULTS,
    quantization: str = "none",
) -> Any:
    """Return a trained model as an `onnx.ModelProto`.

    It takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S] of any B and S,
    except where `export.onnx_inputs` says otherwise. Its outputs are those of
    `export.onnx_outputs`.

    Args:
      export: what to export.
      model: what `export.load` returns.
      values: the settings that `export` takes.
      quantization: type of the weights: `none` (float32) or `int8`; see `Int8Graph`.

    Raises:
      InputError: the package onnx is missing.
    """
    graph = _GRAPHS[quantization]()
    encoder = EncoderGraph(graph, export.encoder_of(model))
    return graph.model(export.onnx_inputs(), export.onnx_outputs(encoder, model, values))
