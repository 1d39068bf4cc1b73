"""The interface of the runtime that computes the steps of a run, and the one of TensorFlow."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf

from albert_tf.runtime import devices
from albert_tf.runtime.peak_flops import peak_flops
from data.pipeline.batches import Mixture, Records, training_batches
from pretraining.loop.config import PretrainConfig
from pretraining.loop.train_step import Step


class Runtime(Protocol):
    """Computes steps on one or several replicas of one or several processes.

    Attributes:
      strategy: of the model's variables and of evaluations.
      replicas: their number over all processes.
      is_chief: True if this process writes the run.
      parallel_parts: the number of parts of a batch that a replica computes in parallel.
    """

    strategy: tf.distribute.Strategy
    replicas: int
    is_chief: bool
    parallel_parts: int

    def peak_flops(self, precision: str) -> float | None:
        """Return the peak FLOPs per second of all replicas; None if unknown."""

    def start(self, step: Step) -> None:
        """Prepare to run `step`."""

    def batches(self, config: PretrainConfig, records: Records | Mixture, first: int) -> Iterator:
        """Return this process's part of the batches from number `first` on."""

    def run_steps(self, batches: Iterator, count: int) -> tuple[Mapping[str, float], np.ndarray]:
        """Run steps; return sums over them and, float32 [count], 1 for each skipped step."""

    def to_variables(self) -> None:
        """Bring the variables of model and optimizer up to date with the steps."""

    def from_variables(self) -> None:
        """Continue with the variables of model and optimizer, which were restored."""

    def any_process(self, flag: bool) -> bool:
        """Return True if any process passes True; all must call it together."""

    def agree(self, text: str) -> bool:
        """Return True if all processes pass the same text; all must call it together."""

    def profiled(self, path: str) -> contextlib.AbstractContextManager:
        """Profile a block for TensorBoard."""


def digest_of(text: str) -> np.ndarray:
    """Return a digest of a text, uint8 [8]."""
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], np.uint8)


class StrategyRuntime:
    """The runtime of TensorFlow: steps run on the replicas of a `tf.distribute.Strategy`."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy, self.replicas = strategy, strategy.num_replicas_in_sync
        self.is_chief = devices.is_chief(strategy)
        self.parallel_parts = devices.num_parallel_parts(strategy)
        self._sums = tf.function(self._summed)

    def peak_flops(self, precision: str) -> float | None:
        """See `Runtime`."""
        return peak_flops(self.strategy, precision)

    def start(self, step: Step) -> None:
        """See `Runtime`."""
        self._run_steps = _loop_function(step, self.strategy)

    def batches(self, config: PretrainConfig, records: Records | Mixture, first: int) -> Iterator:
        """See `Runtime`."""

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return training_batches(
                records,
                config.objective.of_pairs,
                config.masking,
                config.loop.global_batch_size,
                config.seed,
                first,
                context.num_input_pipelines,
                context.input_pipeline_id,
                context.get_per_replica_batch_size(config.loop.global_batch_size),
                config.schedule_steps,
            )

        return iter(self.strategy.distribute_datasets_from_function(of_worker))

    def run_steps(self, batches: Iterator, count: int) -> tuple[Mapping[str, float], np.ndarray]:
        """See `Runtime`."""
        totals, skipped = self._run_steps(batches, tf.constant(count))
        return {name: float(total) for name, total in totals.items()}, skipped.numpy()

    def to_variables(self) -> None:
        """Do nothing: steps update the variables themselves."""

    from_variables = to_variables

    def any_process(self, flag: bool) -> bool:
        """See `Runtime`."""
        return bool(self._sums(tf.constant([float(flag)])) > 0)

    def agree(self, text: str) -> bool:
        """See `Runtime`."""
        own: np.ndarray = digest_of(text).astype(np.float32)
        sums = self._sums(tf.constant(own)).numpy()  # exact: small whole numbers
        return not self.any_process(bool((sums != self.replicas * own).any()))

    def _summed(self, values: tf.Tensor) -> tf.Tensor:
        """Return the sum of float32 [N] over all replicas."""

        def summed(values: tf.Tensor) -> tf.Tensor:
            # A copy: a tensor that all replicas share belongs to no device and cannot be summed.
            return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(values))

        return _local(self.strategy, self.strategy.run(summed, args=(values,)))

    def profiled(self, path: str) -> contextlib.AbstractContextManager:
        """See `Runtime`."""
        return tf.profiler.experimental.Profile(path)


def _loop_function(
    train_step: Step, strategy: tf.distribute.Strategy
) -> tf.types.experimental.PolymorphicFunction:
    """Return a `tf.function` that runs a number of steps on the batches of an iterator.

    It returns the sums over the steps and, as float32 [steps], 1 for each skipped step.
    """

    def one_step(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        results = strategy.run(train_step, args=(batch,))
        return {name: _local(strategy, value) for name, value in results.items()}

    @tf.function
    def run_steps(
        iterator: tf.data.Iterator, count: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        # The graph has one copy of the step. A second copy, outside the loop, would be optimized
        # and rounded differently, and a resumed run would not be bit-identical.
        totals = {name: tf.zeros([]) for name in train_step.results}
        skipped = tf.TensorArray(tf.float32, count)
        for number in tf.range(count):
            results = one_step(next(iterator))
            totals = {name: total + results[name] for name, total in totals.items()}
            skipped = skipped.write(number, results["skipped"])
        return totals, skipped.stack()

    return run_steps


def _local(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    """Return a value that is the same on every replica."""
    return strategy.experimental_local_results(value)[0]
