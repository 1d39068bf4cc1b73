"""The training step as one JAX function of weights, optimizer and batch, on any devices."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.kernels import target
from pretraining.loop.losses import SUMS
from pretraining.loop.train_step import TrainStep
from pretraining.pjrt.program import Program

AXIS = "replicas"


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedStep:
    """`TrainStep` in two programs, between which JAX sums over the replicas.

    Attributes:
      gradients: from a replica's batch to sums and gradients.
      update: from their sums over the replicas to `TrainStep.RESULTS` and the new state.
      features: the names of the features of a batch, in the order of the arguments.
    """

    gradients: Program
    update: Program
    features: tuple[str, ...]

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
            return [tf.stack([results[name] for name in step.RESULTS]), *new]

        counts = tf.TensorSpec([len(step.COUNTED)]), tf.TensorSpec([], tf.int32)
        summed = [tf.TensorSpec([len(SUMS)]), *(tf.TensorSpec(v.shape) for v in step.variables)]
        with target.tracing_for("TPU" if platform == "tpu" else "XLA"):
            return cls(
                Program.of(gradients, [*counts, *specs.values()], variables),
                Program.of(update, summed, variables),
                tuple(specs),
            )

    def __call__(self, state: Sequence[Any], batch: Mapping[str, Any]) -> tuple[list, Any]:
        """Return the new state and the results, inside a `jax.shard_map` over AXIS."""
        import jax
        import jax.numpy as jnp

        counts = jnp.stack([batch[name].sum() for name in TrainStep.COUNTED])
        replica = jax.lax.axis_index(AXIS)
        features = (batch[name] for name in self.features)
        partial = self.gradients(state, jax.lax.psum(counts, AXIS), replica, *features)
        results, *new = self.update(state, *jax.lax.psum(partial, AXIS))
        return new, results


def variables_of(step: TrainStep) -> list[tf.Variable]:
    """Return the variables that a step reads and updates, in the order of the state."""
    optimizer = step.optimizer
    return [*step.model.variables, *optimizer.variables, optimizer.learning_rate]


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
        """Return the new state, in the place of the old one, and float32 [steps, RESULTS]."""
        return self._jitted(state, batches)

    def put_state(self, values: Sequence[np.ndarray]) -> list:
        """Put the values of the variables on every device."""
        return [self._put(value, self._whole) for value in values]

    def put_batch(self, batches: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Put this process's rows of [steps, rows, ...] on its devices."""
        return {name: self._put(value, self._split) for name, value in batches.items()}

    def _put(self, value: np.ndarray, sharding: Any) -> Any:
        import jax

        return jax.make_array_from_process_local_data(sharding, value)
