"""What a training step needs on a TPU, found out on a machine without one.

The step that `strategy.run` gets is lowered to StableHLO and compiled ahead of time for a topology.
Needs jax and libtpu (requirements-slow.txt has versions that work together).
"""

import os
import re
import time
from typing import NamedTuple

import tensorflow as tf

from albert_tf import hardware
from albert_tf.encoder import INPUTS
from albert_tf.errors import InputError
from albert_tf.pretrainer import AlbertPretrainer
from pretraining.config import PretrainConfig
from pretraining.step import TrainStep, make_optimizer


class CompiledSize(NamedTuple):
    """Bytes on one chip; `temporaries` live during a step only. Compile time in seconds."""

    arguments: int
    temporaries: int
    code: int
    compile_s: float


def lower_step(
    config: PretrainConfig, batch_size: int, seq_length: int, num_predictions: int
) -> str:
    """The StableHLO text of one replica's step: forward, backward, clip and update.

    Nothing runs. `config.precision` must be resolved; batch_size is that of one chip.
    """
    with hardware.precision_policy(config.precision):
        model = AlbertPretrainer(config.model).create_weights()
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)
    step = TrainStep(model, optimizer, config)
    specs = batch_specs(batch_size, seq_length, num_predictions)

    @tf.function(jit_compile=True, autograph=False)
    def lowered(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return step(dict(zip(specs, values, strict=True)))

    return lowered.experimental_get_compiler_ir(*specs.values())(stage="stablehlo")


def batch_specs(batch_size: int, seq_length: int, num_predictions: int) -> dict[str, tf.TensorSpec]:
    """Names, shapes and dtypes of a batch, as `data.input_pipeline.ExampleMaker` makes it."""
    pieces, slots = (batch_size, seq_length), (batch_size, num_predictions)
    return {
        **{name: tf.TensorSpec(pieces, tf.int32) for name in INPUTS},
        "masked_lm_positions": tf.TensorSpec(slots, tf.int32),
        "masked_lm_ids": tf.TensorSpec(slots, tf.int32),
        "masked_lm_weights": tf.TensorSpec(slots, tf.float32),
        "pair_label": tf.TensorSpec([batch_size], tf.int32),
        "pair_weight": tf.TensorSpec([batch_size], tf.float32),
    }


def compile_for_tpu(module: str, topology: str = "v5e:2x2") -> CompiledSize:
    """Compiles a StableHLO module for one chip of a topology.

    Raises:
      InputError: jax or libtpu is not installed, or the compiler says that it does not fit.
    """
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no metadata server to ask
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import numpy as np
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jax._src.lib.mlir import ir
        from jax.experimental import topologies
    except ImportError as error:
        raise InputError(
            f"compiling for a TPU needs jax and libtpu ({error}): "
            "pip install jax==0.10.2 libtpu==0.0.42.1"
        ) from None
    chip = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    # TensorFlow leaves its own copies in the module; a barrier is the same identity.
    module = re.sub(r"= mhlo\.copy (%\w+) :", r"= stablehlo.optimization_barrier \1 :", module)
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
    start = time.monotonic()
    try:
        with mlir.make_ir_context():
            executable = chip.client.compile(
                ir.Module.parse(module), xla_client.DeviceList((chip,)), options
            )
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise InputError(f"does not fit {topology}: {str(error).splitlines()[0][:300]}") from None
    memory = executable.get_compiled_memory_stats()
    return CompiledSize(
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.generated_code_size_in_bytes,
        time.monotonic() - start,
    )
