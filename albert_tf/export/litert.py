"""Export to LiteRT (TensorFlow Lite), for phones and small boards: ids in, answers out.

Weights that layers share appear once in the file. They also appear once in memory if the encoder is
built with `unroll=False`, so that its layers are a loop.
"""

import os

import tensorflow as tf

from albert_tf.export.format import Format, Request
from albert_tf.graph.signatures import ServedModule
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.tasks.kind import Export

_LEAST = 3  # positions: [CLS] and a [SEP] after each of two texts


class LiteRT(Format):
    """LiteRT. Without a fixed length, the encoder's layers are a loop."""

    about = "ids in, for phones"
    file = "model.tflite"
    quantizations = ("none", "float16", "int8")
    options = ("seq_length",)

    def can_write(self, export: Export) -> bool:
        """Return True if the module has the signature `tokens`."""
        return export.has_tokens

    def build(self, request: Request) -> ServedModule:
        """Return the module to convert."""
        model = request.export.load(request.run.path, unroll=request.seq_length is not None)
        return request.export.module(model, request.tokenizer, request.values)

    def write(self, built: ServedModule, request: Request, folder: str) -> None:
        """Write model.tflite, tokenizer/ and config.json.

        The model is the module's signature `tokens` without its string outputs. It takes the
        encoder's inputs, int32 [B, S], and keeps the signature's names. It uses only LiteRT's
        built-in operations. With int8, activations are quantized at run time and multiplied in
        integers (LiteRT's dynamic range quantization). `request.seq_length` is S, with B = 1, for
        accelerators that need one fixed shape. By default B is any size, and S any up to the
        model's positions.
        """
        seq_length = request.seq_length
        longest = AlbertConfig.from_json(request.run.config_path).max_positions
        if seq_length is not None and not _LEAST <= seq_length <= longest:
            raise InputError(
                f"--seq_length must be between {_LEAST} and {longest}, the model's "
                f"`max_positions`. Received: {seq_length}."
            )
        with outputs.new_folder(folder) as work:
            with open(os.path.join(work, self.file), "wb") as file:
                function = _tokens(built, seq_length, longest)
                file.write(_converted(function, request.quantization))
            request.write_beside(work)


def _tokens(
    module: ServedModule, seq_length: int | None, longest: int
) -> tf.types.experimental.ConcreteFunction:
    """Return the signature `tokens` without strings, for shape [1, .., seq_length] if given.

    Otherwise, its inputs may have up to `longest` positions.
    """
    signature = module.signatures()["tokens"]
    specs = signature.input_signature
    if seq_length is not None:
        specs = [
            tf.TensorSpec([1, *spec.shape[1:-1], seq_length], spec.dtype, spec.name)
            for spec in specs
        ]

    @tf.function(input_signature=specs, autograph=False)
    def numbers(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        if seq_length is None:
            ids = (_limited(ids[0], longest), *ids[1:])
        values = signature.python_function(*ids)
        return {name: value for name, value in values.items() if value.dtype != tf.string}

    return numbers.get_concrete_function()


def _limited(ids: tf.Tensor, longest: int) -> tf.Tensor:
    """Return `ids` [.., S]; an S above `longest` is an error.

    LiteRT has no assertions, but its gather refuses an index that is out of bounds.
    """
    *outer, length = tf.unstack(tf.shape(ids))
    return tf.reshape(ids, [*outer, tf.gather(tf.range(longest + 1), length)])


def _converted(function: tf.types.experimental.ConcreteFunction, quantization: str) -> bytes:
    holder = tf.Module()
    holder.weights = list(function.graph.variables)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], holder)
    if quantization != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()
