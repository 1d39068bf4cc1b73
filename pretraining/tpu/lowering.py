"""The memory and the estimated time of a training step on a TPU, from a machine without one.

The step that `strategy.run` calls is lowered to StableHLO and compiled ahead of time for a
topology. This needs jax and libtpu (requirements-tpu-check.txt has versions that work together).
"""

import functools
import math
import os
import re
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.models.head import MASKED_POSITIONS
from albert_tf.models.kernels import target, xla_internals
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError
from pretraining.loop.config import PretrainConfig
from pretraining.loop.losses import SUMMED
from pretraining.loop.train_step import TrainStep, make_optimizer
from pretraining.tpu.cost_model import estimated_cycles
from pretraining.tpu.jax_internals import compile_stablehlo
from pretraining.tpu.step import GIB, CompiledSize, parse_topology
from pretraining.tpu.subprocess_call import call_in_subprocess

# Compiling needs no chip, so libtpu must not query a metadata server, lock a chip or print
# warnings. Threads need more than their 64 KiB of stack where dropout is fused into a product.
_NO_CHIP = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "JAX_PLATFORMS": "cpu",
    "LIBTPU_INIT_ARGS": "--fibers_default_thread_stack_size=1048576",
}
_REFUSAL = re.compile(r"temporaries \(([\d.]+)([KMG])\)")


def lower_step(
    config: PretrainConfig,
    batch_size: int,
    seq_length: int,
    num_predictions: int,
    replicas: int = 1,
    make_model: Callable[[AlbertConfig], Any] = AlbertPretrainer,
) -> str:
    """Return the StableHLO text of a step: forward, backward, all-reduce, clip and update.

    Every replica runs this program. It is not executed here.

    Args:
      config: its `precision` must be resolved.
      batch_size: sequences on one chip.
      seq_length: pieces per sequence.
      num_predictions: predicted pieces per sequence.
      replicas: the number of chips that share a global batch.
      make_model: returns a model that `TrainStep` can train; by default the one that we train.
    """
    with devices.precision_policy(config.precision), tf.variable_creator_scope(_without_value):
        model = make_model(config.model).create_weights()
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)

    def all_reduce(values: Any) -> Any:
        if replicas == 1:
            return values
        return tf.nest.map_structure(lambda x: xla_internals.all_reduce(x, replicas), values)

    step = TrainStep(model, optimizer, config)
    specs = batch_specs(batch_size, seq_length, num_predictions)

    @tf.function(jit_compile=True, autograph=False)
    def lowered(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = dict(zip(specs, values, strict=True))
        with target.tracing_for("TPU"):
            counts = all_reduce(tf.stack([tf.reduce_sum(batch[name]) for name in step.COUNTED]))
            sums, gradients = step.gradients(batch, counts, tf.constant(0))
            return step.update(all_reduce(sums), all_reduce(gradients))

    return lowered.experimental_get_compiler_ir(*specs.values())(stage="stablehlo")


@functools.lru_cache(maxsize=1)
def lower_step_in_subprocess(*args: Any) -> str:
    """Return `lower_step(*args)` from a subprocess: TensorFlow never frees a lowering's memory."""
    return call_in_subprocess("lowers the step", lower_step, *args)


def _without_value(create: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
    """Create a variable whose memory is never written, so that it occupies none."""
    value = kwargs["initial_value"]
    shape = kwargs.get("shape") or getattr(value, "shape", None)
    dtype = kwargs.get("dtype") or getattr(value, "dtype", None)
    if shape and dtype:
        kwargs["initial_value"] = lambda: tf.raw_ops.Empty(shape=shape, dtype=dtype)
    return create(**kwargs)


def batch_specs(batch_size: int, seq_length: int, num_predictions: int) -> dict[str, tf.TensorSpec]:
    """Return names, shapes and dtypes of the batches of `data.pipeline.batches.ExampleMaker`."""
    pieces, slots = (batch_size, seq_length), (batch_size, num_predictions)
    specs = {name: tf.TensorSpec(pieces, tf.int32) for name in INPUTS}
    specs["masked_lm_positions"] = tf.TensorSpec(slots, tf.int32)
    for objective in SUMMED:
        shape = slots if objective.head.input == MASKED_POSITIONS else (batch_size,)
        specs[objective.labels] = tf.TensorSpec(shape, tf.int32)
        specs[objective.weights] = tf.TensorSpec(shape, tf.float32)
    return specs


class TpuCompiler:
    """libtpu's compiler for the chips of a topology; no TPU is needed.

    Attributes:
      chips: the devices; each is a replica.

    Raises:
      InputError: jax or libtpu is not installed, or libtpu does not support the topology.
    """

    def __init__(self, topology: str) -> None:
        for name, value in _NO_CHIP.items():
            os.environ.setdefault(name, value)
        try:
            import libtpu  # noqa: F401
            from jax.experimental import topologies
        except ImportError as error:
            raise InputError(
                f"compiling for a TPU needs jax and libtpu ({error}). Install them with "
                "pip install -r requirements-tpu-check.txt."
            ) from None
        # Combines the two cores of a v4 and their memory into one device, as v5p always does.
        megacore = {"chip_config_name": "megacore"} if topology.startswith("v4") else {}
        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **megacore)
        except Exception as error:
            if "INVALID_ARGUMENT" not in str(error):
                raise
            raise InputError(
                f"libtpu does not support the topology {topology!r}: {str(error).splitlines()[0]}"
            ) from None
        self.chips = found.devices
        self._clock_hz = parse_topology(topology)[1].clock_hz

    def compile(self, module: str, quick: bool = False) -> CompiledSize:
        """Compile a StableHLO module for all chips; return size and time on each.

        With `quick`, the compiler makes the least effort.
        """
        # TensorFlow leaves its own copies in the module. A barrier is an equivalent identity.
        copy, same = r"= mhlo\.copy (%\w+) :", r"= stablehlo.optimization_barrier \1 :"
        start = time.monotonic()
        try:
            effort = -1.0 if quick else 0.0
            executable = compile_stablehlo(re.sub(copy, same, module), self.chips, effort)
            memory = executable.get_compiled_memory_stats()
            program = executable.hlo_modules()[0].to_string()
        except Exception as error:
            refusal = _REFUSAL.search(str(error))
            if "RESOURCE_EXHAUSTED" not in str(error) or refusal is None:
                raise
            temporaries = int(float(refusal[1]) * {"K": 2**10, "M": 2**20, "G": GIB}[refusal[2]])
            seconds = time.monotonic() - start
            return CompiledSize(argument_bytes(module), temporaries, 0, seconds, refused=True)
        # Outputs that are not updated in place exist besides the arguments when the step ends.
        new = memory.output_size_in_bytes - memory.alias_size_in_bytes
        return CompiledSize(
            memory.argument_size_in_bytes,
            memory.temp_size_in_bytes + new,
            memory.generated_code_size_in_bytes,
            time.monotonic() - start,
            step_s=estimated_cycles(program) / self._clock_hz,
        )


def argument_bytes(module: str) -> int:
    """Return the size in bytes of the arguments of the module's entry function."""
    entry = next(line for line in module.splitlines() if "func.func @main(" in line)
    types = re.findall(r"%arg\d+: tensor<((?:\d+x)*)[a-z]+(\d+)>", entry)
    bits = (int(width) * math.prod(map(int, shape.split("x")[:-1])) for shape, width in types)
    return sum(-(-size // 8) for size in bits)
