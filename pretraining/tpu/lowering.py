"""What a training step needs on a TPU, found out on a machine without one.

The step that `strategy.run` gets is lowered to StableHLO and compiled ahead of time for a topology.
Needs jax and libtpu (requirements-tpu-check.txt has versions that work together).
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
from albert_tf.models.layers import islands
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError
from pretraining.loop.config import PretrainConfig
from pretraining.loop.train_step import TrainStep, make_optimizer
from pretraining.tpu.jax_internals import compile_stablehlo
from pretraining.tpu.step import GIB, CompiledSize
from pretraining.tpu.subprocess_call import call_in_subprocess

# Compiling needs no chip: no metadata server to ask, no chip to lock, nothing to warn of. Threads
# need more than their 64 KiB of stack where dropout is fused into a product.
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
    make_model: Callable[[AlbertConfig], Any] = AlbertPretrainer,
) -> str:
    """The StableHLO text of one replica's step: forward, backward, clip and update.

    No step is taken. `config.precision` must be resolved; batch_size is that of one chip;
    make_model gives what `TrainStep` can train, by default what is trained.
    """
    with devices.precision_policy(config.precision), tf.variable_creator_scope(_without_value):
        model = make_model(config.model).create_weights()
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)
    step = TrainStep(model, optimizer, config)
    specs = batch_specs(batch_size, seq_length, num_predictions)

    @tf.function(jit_compile=True, autograph=False)
    def lowered(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        with islands.accelerator():
            return step(dict(zip(specs, values, strict=True)))

    return lowered.experimental_get_compiler_ir(*specs.values())(stage="stablehlo")


@functools.lru_cache(maxsize=1)
def lower_step_in_subprocess(*args: Any) -> str:
    """`lower_step(*args)` in a process of its own: TensorFlow gives back no lowering's memory."""
    return call_in_subprocess("lowers the step", lower_step, *args)


def _without_value(create: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
    """Makes a variable whose memory nobody writes: it takes no room, however large the model."""
    value = kwargs["initial_value"]
    shape = kwargs.get("shape") or getattr(value, "shape", None)
    dtype = kwargs.get("dtype") or getattr(value, "dtype", None)
    if shape and dtype:
        kwargs["initial_value"] = lambda: tf.raw_ops.Empty(shape=shape, dtype=dtype)
    return create(**kwargs)


def batch_specs(batch_size: int, seq_length: int, num_predictions: int) -> dict[str, tf.TensorSpec]:
    """Names, shapes and dtypes of a batch, as `data.pipeline.batches.ExampleMaker` makes it."""
    pieces, slots = (batch_size, seq_length), (batch_size, num_predictions)
    return {
        **{name: tf.TensorSpec(pieces, tf.int32) for name in INPUTS},
        "masked_lm_positions": tf.TensorSpec(slots, tf.int32),
        "masked_lm_ids": tf.TensorSpec(slots, tf.int32),
        "masked_lm_weights": tf.TensorSpec(slots, tf.float32),
        "pair_label": tf.TensorSpec([batch_size], tf.int32),
        "pair_weight": tf.TensorSpec([batch_size], tf.float32),
    }


class TpuCompiler:
    """libtpu's compiler for one chip of a topology; no TPU is needed.

    Raises:
      InputError: jax or libtpu is not installed, or libtpu does not know the topology.
    """

    def __init__(self, topology: str) -> None:
        for name, value in _NO_CHIP.items():
            os.environ.setdefault(name, value)
        try:
            import libtpu  # noqa: F401
            from jax.experimental import topologies
        except ImportError as error:
            raise InputError(
                f"compiling for a TPU needs jax and libtpu ({error}): "
                "pip install -r requirements-tpu-check.txt"
            ) from None
        # The two cores of a v4 as one device, with the chip's whole memory; v5p is so anyway.
        megacore = {"chip_config_name": "megacore"} if topology.startswith("v4") else {}
        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **megacore)
        except Exception as error:
            if "INVALID_ARGUMENT" not in str(error):
                raise
            raise InputError(
                f"libtpu does not know the topology {topology!r}: {str(error).splitlines()[0]}"
            ) from None
        self._chip = found.devices[0]

    def compile(self, module: str, quick: bool = False) -> CompiledSize:
        """What a StableHLO module takes of the chip; `quick`: with the compiler's least effort."""
        # TensorFlow leaves its own copies in the module; a barrier is the same identity.
        copy, same = r"= mhlo\.copy (%\w+) :", r"= stablehlo.optimization_barrier \1 :"
        start = time.monotonic()
        try:
            effort = -1.0 if quick else 0.0
            executable = compile_stablehlo(re.sub(copy, same, module), self._chip, effort)
            memory = executable.get_compiled_memory_stats()
        except Exception as error:
            refusal = _REFUSAL.search(str(error))
            if "RESOURCE_EXHAUSTED" not in str(error) or refusal is None:
                raise
            temporaries = int(float(refusal[1]) * {"K": 2**10, "M": 2**20, "G": GIB}[refusal[2]])
            seconds = time.monotonic() - start
            return CompiledSize(argument_bytes(module), temporaries, 0, seconds, refused=True)
        # What is not updated in place is beside the arguments when the step ends.
        new = memory.output_size_in_bytes - memory.alias_size_in_bytes
        return CompiledSize(
            memory.argument_size_in_bytes,
            memory.temp_size_in_bytes + new,
            memory.generated_code_size_in_bytes,
            time.monotonic() - start,
        )


def argument_bytes(module: str) -> int:
    """The size of what the module's entry takes."""
    entry = next(line for line in module.splitlines() if "func.func @main(" in line)
    types = re.findall(r"%arg\d+: tensor<((?:\d+x)*)[a-z]+(\d+)>", entry)
    bits = (int(width) * math.prod(map(int, shape.split("x")[:-1])) for shape, width in types)
    return sum(-(-size // 8) for size in bits)
