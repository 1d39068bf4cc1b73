"""The training step as one JAX function of weights, optimizer and batch, on any devices."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.models.layers import target
from pretraining.loop.losses import SUMS
from pretraining.loop.train_step import TrainStep
from pretraining.pjrt.program import Program

AXIS = "replicas"


@dataclasses.dataclass(frozen=True)
class JoinedStep:
    """`TrainStep` in two programs, between which JAX sums over the replicas.

    Attributes:
      gradients: from a replica's batch to sums and gradients.
      update: from their sums over the replicas to `TrainStep.RESULTS` and the new state.
      batch: the shapes of the features of a replica's batch.
      state: the shapes of the variables of model and optimizer.
    """

    gradients: Program
    update: Program
    batch: dict[str, tuple]
    state: list[tuple]

    @classmethod
    def of(
        cls, step: TrainStep, specs: Mapping[str, tf.TensorSpec], platform: str
    ) -> "JoinedStep":
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
        # The operations for a GPU are TensorFlow's own, and suit any device.
        with target.tracing_for("TPU" if platform == "tpu" else "GPU"):
            return cls(
                Program.of(gradients, [*counts, *specs.values()], variables),
                Program.of(update, summed, variables),
                {name: (tuple(spec.shape), spec.dtype.name) for name, spec in specs.items()},
                [(tuple(v.shape), v.dtype.name) for v in variables],
            )

    def __call__(self, state: Sequence[Any], batch: Mapping[str, Any]) -> tuple[list, Any]:
        """Return the new state and the results, on the replicas of a `jax.shard_map` over AXIS."""
        import jax
        import jax.numpy as jnp

        counts = jnp.stack([batch[name].sum() for name in TrainStep.COUNTED])
        replica = jax.lax.axis_index(AXIS)
        features = (batch[name] for name in self.batch)
        partial = self.gradients(state, jax.lax.psum(counts, AXIS), replica, *features)
        results, *new = self.update(state, *jax.lax.psum(partial, AXIS))
        return new, results


def variables_of(step: TrainStep) -> list[tf.Variable]:
    """Return the variables that a step reads and updates, in the order of the state."""
    optimizer = step.optimizer
    return [*step.model.variables, *optimizer.variables, optimizer.learning_rate]


def sharded(step: JoinedStep, devices: Sequence[Any]) -> Any:
    """Return the jitted step of a state, overwritten, and a global batch over the devices."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.sharding.Mesh(devices, (AXIS,))
    same, split = PartitionSpec(), PartitionSpec(AXIS)
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=(same, split), out_specs=(same, same), check_vma=False
    )
    shardings = NamedSharding(mesh, same), NamedSharding(mesh, split)
    return jax.jit(
        mapped, in_shardings=shardings, out_shardings=shardings[0], donate_argnums=0
    )
