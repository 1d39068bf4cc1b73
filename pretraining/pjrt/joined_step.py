"""The training step as one JAX function of weights, optimizer and batch, on any devices."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels import tracing_for
from albert_tf.optimization import AdamW
from albert_tf.runtime import devices
from albert_tf.training.jax_program import Program, Shape, num_bytes
from albert_tf.training.step import num_parts
from pretraining.loop.config import PretrainConfig
from pretraining.loop.train_step import TrainStep, make_optimizer

AXIS = "replicas"
# Steps that a call runs: the host needs a few milliseconds for a call, however many steps it runs.
STEPS_PER_CALL = 10


def steps_per_call(count: int) -> int:
    """Return the number of steps in each of the equal calls that run `count` steps."""
    return num_parts(count, STEPS_PER_CALL)


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedStep:
    """`TrainStep` in two programs, between which JAX sums over the replicas.

    Attributes:
      gradients: from a replica's batch to sums and gradients.
      update: from their sums over the replicas to `TrainStep.results` and the new state.
      features: the names of the features of a batch, in the order of the arguments.
      counted: `TrainStep.counted`.
    """

    gradients: Program
    update: Program
    features: tuple[str, ...]
    counted: tuple[str, ...]

    @classmethod
    def of(cls, step: TrainStep, specs: Mapping[str, tf.TensorSpec], platform: str) -> "JoinedStep":
        """Lower a step on batches like `specs` of a replica for cpu, gpu or tpu."""
        variables = variables_of(step)

        def gradients(counts: tf.Tensor, replica: tf.Tensor, *features: tf.Tensor) -> list:
            batch = dict(zip(specs, features, strict=True))
            sums, gradients = step.gradients(batch, counts, replica)
            return [sums, *gradients]

        def update(sums: tf.Tensor, *gradients: tf.Tensor) -> list:
            results = step.update(sums, list(gradients))
            new = [tf.identity(variable) for variable in variables]
            return [tf.stack([results[name] for name in step.results]), *new]

        counts = tf.TensorSpec([len(step.counted)]), tf.TensorSpec([], tf.int32)
        summed = [
            tf.TensorSpec([len(step.sums)]),
            *(tf.TensorSpec(v.shape) for v in step.variables),
        ]
        with tracing_for("TPU" if platform == "tpu" else "XLA"):
            return cls(
                Program.of(gradients, [*counts, *specs.values()], variables),
                Program.of(update, summed, variables),
                tuple(specs),
                step.counted,
            )

    @property
    def state(self) -> tuple[Shape, ...]:
        """The shapes of the variables."""
        return self.update.results[1 : self.update.num_results]

    @property
    def batch(self) -> dict[str, Shape]:
        """The shapes of a replica's batch."""
        return dict(zip(self.features, self.gradients.arguments[2:], strict=False))

    def argument_bytes(self, steps: int) -> int:
        """Return the bytes on a device of the variables and of the batches of so many steps."""
        batch = sum(map(num_bytes, self.batch.values()))
        return sum(map(num_bytes, self.state)) + steps * batch

    def __call__(self, state: Sequence[Any], batch: Mapping[str, Any]) -> tuple[list, Any]:
        """Return the new state and the results, inside a `jax.shard_map` over AXIS."""
        import jax
        import jax.numpy as jnp

        counts = jnp.stack([batch[name].sum() for name in self.counted])
        replica = jax.lax.axis_index(AXIS)
        features = (batch[name] for name in self.features)
        partial = self.gradients(state, jax.lax.psum(counts, AXIS), replica, *features)
        results, *new = self.update(state, *jax.lax.psum(partial, AXIS))
        return new, results


def variables_of(step: TrainStep) -> list[tf.Variable]:
    """Return the variables that a step reads and updates, in the order of the state."""
    optimizer = step.optimizer
    return [*step.model.variables, *optimizer.variables, optimizer.learning_rate]


def without_values(
    config: PretrainConfig, make_model: Callable[[AlbertConfig], Any]
) -> tuple[Any, AdamW]:
    """Return a model and its optimizer, for lowering only: their variables have no values."""
    with devices.precision_policy(config.precision), tf.variable_creator_scope(_without_value):
        model = make_model(config.model).create_weights()
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def _without_value(create: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
    """Create a variable whose memory is never written, so that it occupies none."""
    value = kwargs["initial_value"]
    shape = kwargs.get("shape") or getattr(value, "shape", None)
    dtype = kwargs.get("dtype") or getattr(value, "dtype", None)
    if shape and dtype:
        kwargs["initial_value"] = lambda: tf.raw_ops.Empty(shape=shape, dtype=dtype)
    return create(**kwargs)


class ShardedStep:
    """Several steps in one call, on replicas that share each batch.

    Args:
      step: one step of a replica.
      replicas: the devices, of all processes.
      options: XLA's options.
    """

    def __init__(
        self,
        step: JoinedStep,
        replicas: Sequence[Any],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        self._step, self._replicas = step, len(replicas)
        self.argument_bytes = step.argument_bytes
        mesh = jax.sharding.Mesh(replicas, (AXIS,))
        whole, split = PartitionSpec(), PartitionSpec(None, AXIS)
        self._whole, self._split = NamedSharding(mesh, whole), NamedSharding(mesh, split)
        self._jitted = jax.jit(
            jax.shard_map(
                lambda state, batches: jax.lax.scan(step, state, batches),
                mesh=mesh,
                in_specs=(whole, split),
                out_specs=whole,
                check_vma=False,
            ),
            in_shardings=(self._whole, self._split),
            out_shardings=self._whole,
            donate_argnums=0,
            compiler_options=options,
        )

    def __call__(self, state: list, batches: Mapping[str, Any]) -> tuple[list, Any]:
        """Return the new state, in the place of the old one, and float32 [steps, results]."""
        return self._jitted(state, batches)

    def lower(self, steps: int) -> Any:
        """Return the `jax.stages.Lowered` of a call of so many steps; it can be compiled."""
        import jax

        batch = {
            name: jax.ShapeDtypeStruct((steps, self._replicas * rows, *others), dtype)
            for name, ((rows, *others), dtype) in self._step.batch.items()
        }
        return self._jitted.lower(
            [jax.ShapeDtypeStruct(*shape) for shape in self._step.state], batch
        )

    def put_state(self, values: Sequence[np.ndarray]) -> list:
        """Put the values of the variables on every device."""
        return [self._put(value, self._whole) for value in values]

    def put_batch(self, batches: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Put this process's rows of [steps, rows, ...] on its devices."""
        return {name: self._put(value, self._split) for name, value in batches.items()}

    def _put(self, value: np.ndarray, sharding: Any) -> Any:
        import jax

        return jax.make_array_from_process_local_data(sharding, value)
