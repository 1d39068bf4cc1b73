"""A TensorFlow function as a program that JAX can call on any device.

TensorFlow lowers the function to StableHLO, in which its variables are arguments. The portable
artifact of that text takes the place of the module of a `jax.export.Exported`. Each call used here
is public, but jax does not document the substitution: the tests run it on each supported jax.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError

# TensorFlow leaves its own copies in the text, and sets sizes to those that the types have already.
# A reshape to the same shape is the same identity.
_COPY = re.compile(r"= mhlo\.copy (%\w+) : (\S+)")
_SIZE = re.compile(
    r"= stablehlo\.set_dimension_size (%\w+), (%\w+), dim = (\d+) : "
    r"\((tensor<((?:\d+x)+)\w+>), tensor<i32>\) -> \4"
)
_NUMBER = re.compile(r"(%\w+) = stablehlo\.constant dense<(\d+)> : tensor<i32>")
# It packs eight bits of a constant into a byte; jax reads a byte for each.
_BITS = re.compile(r'dense<"0x([0-9A-F]+)"> : tensor<((?:\d+x)+)i1>')
_RESULTS = re.compile(r"func\.func @main\(.*\) -> \(?(.*?)\)? \{")
_TYPE = re.compile(r"tensor<((?:\d+x)*)(\w+)>")
_DTYPES = {"i1": "bool", "i32": "int32", "i64": "int64", "f32": "float32", "bf16": "bfloat16"}

Shape = tuple[tuple[int, ...], str]  # with the dtype


@dataclasses.dataclass(frozen=True)
class Program:
    """A lowered function of its arguments and of variables that it reads.

    Attributes:
      artifact: the StableHLO, in the oldest format that jaxlib can write.
      arguments: the shapes of the arguments and then of the variables.
      results: the shapes of the results and then of variables that the function updates.
      num_results: the number of results of the function itself.
      variables: which variables the function reads, by their number.
    """

    artifact: bytes
    arguments: tuple[Shape, ...]
    results: tuple[Shape, ...]
    num_results: int
    variables: tuple[int, ...]

    @classmethod
    def of(
        cls,
        function: Callable[..., Sequence[tf.Tensor]],
        specs: Sequence[tf.TensorSpec],
        variables: Sequence[tf.Variable],
    ) -> "Program":
        """Lower a function of tensors like `specs`, for the devices that the code is traced for.

        The values of the variables are not used, and they are not updated.
        """
        compiled = tf.function(function, jit_compile=True, autograph=False)
        concrete = compiled.get_concrete_function(*specs)
        numbers = {id(variable.handle): number for number, variable in enumerate(variables)}
        read = tuple(numbers[id(handle)] for handle in concrete.captured_inputs)
        text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo")
        text = _COPY.sub(r"= stablehlo.reshape \1 : (\2) -> \2", text)
        text = without_sizes(text)
        text = _BITS.sub(_unpacked, text)
        signature = _RESULTS.search(text)
        assert signature is not None
        return cls(
            _serialize(text),
            tuple(_shape(one) for one in (*specs, *(variables[number] for number in read))),
            tuple(map(_parse_shape, _TYPE.findall(signature[1]))),
            len(concrete.outputs),
            read,
        )

    def __call__(self, state: Sequence[Any], *arguments: Any) -> list[Any]:
        """Return the results of the function inside a jitted one.

        `state` holds the values of all variables.
        """
        jax = load_jax()

        def shaped(shapes: Sequence[Shape]) -> list[Any]:
            return [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in shapes]

        def stand_in(*_: Any) -> list[Any]:
            return [jax.numpy.zeros(one.shape, one.dtype) for one in shaped(self.results)]

        exported = jax.export.export(
            jax.jit(stand_in), disabled_checks=[jax.export.DisabledSafetyCheck.platform()]
        )(*shaped(self.arguments))
        exported = dataclasses.replace(
            exported,
            mlir_module_serialized=self.artifact,
            module_kept_var_idx=tuple(range(len(self.arguments))),
        )
        values = (*arguments, *(state[number] for number in self.variables))
        return exported.call(*values)[: self.num_results]


def load_jax() -> Any:
    """Return the module jax, with 64-bit integers, in which steps are counted.

    Raises:
      InputError: it is not installed, or not with the jaxlib that it needs.
    """
    try:
        import jax
        import jax.export
    except (ImportError, RuntimeError) as error:  # the latter from another jaxlib
        raise InputError(
            f"--runtime=pjrt needs jax ({error}). Run {extras.install('pjrt')} (for GPUs, the "
            "extra pjrt-gpu; for TPUs, pjrt-tpu), or train with --runtime=tensorflow."
        ) from None
    jax.config.update("jax_enable_x64", True)
    return jax


def check_programs() -> None:
    """Lower a small program, to see that JAX takes TensorFlow's.

    Raises:
      InputError: it does not, because their versions do not go together.
    """
    jax = load_jax()
    try:
        program = Program.of(lambda x: [x + x], [tf.TensorSpec([2])], [])
        like = jax.ShapeDtypeStruct((2,), "float32")
        jax.jit(lambda x: program((), x)).lower(like)
    except Exception as error:
        raise InputError(
            f"jax {jax.__version__} cannot read a program of TensorFlow {tf.__version__} "
            f"({str(error).splitlines()[0]}). Run {extras.install('pjrt')}, or train with "
            "--runtime=tensorflow."
        ) from None


def num_bytes(shape: Shape) -> int:
    """Return the size of a tensor in bytes."""
    return math.prod(shape[0]) * tf.as_dtype(shape[1]).size


def _serialize(text: str) -> bytes:
    """Return the portable artifact of a StableHLO text."""
    from jax.extend.mlir.dialects import stablehlo

    return stablehlo.serialize_portable_artifact_str(text, stablehlo.get_minimum_version())


def without_sizes(text: str) -> str:
    """Return the text without the sizes that the types have already."""
    numbers = set(_NUMBER.findall(text))

    def same(match: re.Match[str]) -> str:
        value, number, dimension, shaped, shape = match.groups()
        assert (number, shape.split("x")[int(dimension)]) in numbers, match[0]
        return f"= stablehlo.reshape {value} : ({shaped}) -> {shaped}"

    return _SIZE.sub(same, text)


def _unpacked(match: re.Match[str]) -> str:
    """Return a constant of bits with a byte for each."""
    count = math.prod(map(int, match[2].split("x")[:-1]))
    packed = np.frombuffer(bytes.fromhex(match[1]), np.uint8)
    assert len(packed) == -(-count // 8), f"{len(packed)} bytes for {count} bits"
    bits = np.unpackbits(packed, count=count, bitorder="little")
    return f'dense<"0x{bits.tobytes().hex().upper()}"> : tensor<{match[2]}i1>'


def _shape(like: tf.TensorSpec | tf.Variable) -> Shape:
    return tuple(like.shape), like.dtype.name


def _parse_shape(groups: tuple[str, str]) -> Shape:
    return tuple(map(int, groups[0].split("x")[:-1])), _DTYPES[groups[1]]
