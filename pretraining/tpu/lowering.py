"""The memory and the estimated time of a training step on a TPU, from a machine without one.

The program of `pretraining.train --runtime=pjrt` is compiled ahead of time for a topology. This
needs the extra pjrt-tpu, which has versions of jax and libtpu that work together.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.models.head import MASKED_POSITIONS
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError
from albert_tf.training.jax_program import check_programs, load_jax
from data.objectives.objective import Objective
from pretraining.loop.config import PretrainConfig
from pretraining.loop.train_step import TrainStep
from pretraining.pjrt.compiled import CompiledSize, compile_lowered
from pretraining.pjrt.joined_step import JoinedStep, ShardedStep, without_values
from pretraining.tpu.cost_model import estimated_cycles
from pretraining.tpu.step import parse_topology
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


def lower_step(
    config: PretrainConfig,
    batch_size: int,
    seq_length: int,
    num_predictions: int,
    make_model: Callable[[AlbertConfig], Any] | None = None,
) -> JoinedStep:
    """Return the step that `pretraining.train --runtime=pjrt` compiles; it is not executed.

    Args:
      config: its `precision` must be resolved.
      batch_size: sequences on one chip.
      seq_length: pieces per sequence.
      num_predictions: predicted pieces per sequence.
      make_model: returns a model that `TrainStep` can train; by default the one that we train.
    """
    ours = functools.partial(AlbertPretrainer, heads=config.heads)
    step = TrainStep(*without_values(config, make_model or ours), config)
    specs = batch_specs(batch_size, seq_length, num_predictions, config.objectives)
    return JoinedStep.of(step, specs, "tpu")


@functools.lru_cache(maxsize=1)
def lower_step_in_subprocess(*args: Any) -> JoinedStep:
    """Return `lower_step(*args)` from a subprocess: TensorFlow never frees a lowering's memory."""
    return call_in_subprocess("lowers the step", lower_step, *args)


def batch_specs(
    batch_size: int, seq_length: int, num_predictions: int, objectives: Sequence[Objective]
) -> dict[str, tf.TensorSpec]:
    """Return names, shapes and dtypes of the batches of `data.pipeline.batches.ExampleMaker`."""
    pieces, slots = (batch_size, seq_length), (batch_size, num_predictions)
    specs = {name: tf.TensorSpec(pieces, tf.int32) for name in INPUTS}
    specs["masked_lm_positions"] = tf.TensorSpec(slots, tf.int32)
    for objective in objectives:
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
                f"compiling for a TPU needs jax and libtpu ({error}). On x86-64 Linux, run "
                f"{extras.install('pjrt-tpu')}."
            ) from None
        # Combines the two cores of a v4 and their memory into one device, as v5p always does.
        megacore = {"chip_config_name": "megacore"} if topology.startswith("v4") else {}
        try:
            description = topologies.get_topology_desc(
                platform="tpu", topology_name=topology, **megacore
            )
        except Exception as error:
            if "INVALID_ARGUMENT" not in str(error):
                raise
            raise InputError(
                f"libtpu does not support the topology {topology!r}: {str(error).splitlines()[0]}"
            ) from None
        self.chips = description.devices
        self._jax = load_jax()
        check_programs()
        self._clock_hz = parse_topology(topology)[1].clock_hz

    def compile_step(self, step: JoinedStep, steps: int, quick: bool = False) -> CompiledSize:
        """Compile a call of so many steps on all chips; return the size and the time of a step."""
        lowered = ShardedStep(step, self.chips).lower(steps)
        size = self.compile(lowered, step.argument_bytes(steps), steps, quick)
        return size._replace(step_s=size.step_s / steps)

    def compile(
        self, lowered: Any, argument_bytes: int, steps: int = 0, quick: bool = False
    ) -> CompiledSize:
        """Compile what `jax.jit` lowered for all chips; return size and time on each.

        Args:
          lowered: a `jax.stages.Lowered`.
          argument_bytes: of the arguments on a chip, should the compiler give up.
          steps: the trips of a loop over steps, if there is one.
          quick: the compiler makes the least effort.
        """
        self._jax.config.update("jax_optimization_level", "O0" if quick else "UNKNOWN")
        size, compiled = compile_lowered(lowered, argument_bytes)
        cycles = estimated_cycles(compiled.as_text(), steps) if compiled else 0
        return size._replace(step_s=cycles / self._clock_hz)
