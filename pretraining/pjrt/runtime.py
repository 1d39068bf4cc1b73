"""Training steps under JAX's PJRT client, on all devices of one kind and of several hosts."""

import contextlib
import functools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices, process_end
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.peak_flops import peak_flops, peak_of
from albert_tf.training.jax_devices import JaxDevices, sentence
from data.pipeline.batches import Mixture, Records, training_batches
from pretraining.loop.config import PretrainConfig
from pretraining.loop.runtime import digest_of
from pretraining.loop.train_step import Step, TrainStep
from pretraining.pjrt.compiled import compile_lowered, gb, verdict
from pretraining.pjrt.joined_step import (
    JoinedStep,
    ShardedStep,
    steps_per_call,
    variables_of,
    without_values,
)

_REACH_SECONDS = 300.0  # until the first process listens


class PjrtRuntime:
    """The runtime of JAX: `pretraining.loop.runtime.Runtime`.

    TensorFlow makes the batches and holds the variables, on the CPU: call this before it computes
    anything. Weights and optimizer are on the devices while steps run.

    Args:
      device: `auto` uses JAX's own choice; `cpu`, `gpu` or `tpu` use all devices of that kind; and
        `multi_worker` uses all devices of several processes, as TF_CONFIG describes them or as
        `jax.distributed` finds them.
      deterministic: use only kernels that give the same bits each time.

    Raises:
      InputError: jax or the device is absent, jax does not go with this TensorFlow, or the
        processes do not find each other.
    """

    def __init__(self, device: str, deterministic: bool = True) -> None:
        join = _join_processes if device == "multi_worker" else None
        self._found = JaxDevices(device, deterministic, join)
        self._jax, self._options = self._found.jax, self._found.options
        self.devices, self.platform = self._found.devices, self._found.platform
        self.strategy = self._found.strategy
        self.replicas, self.parallel_parts = len(self.devices), 1
        self._num_processes, self._process = self._jax.process_count(), self._jax.process_index()
        self.is_chief = self._process == 0
        self._state: list[Any] | None = None
        self._sharded: ShardedStep | None = None
        self._is_ahead = False  # of the variables

    @property
    def precision(self) -> str:
        """The fastest precision on the devices."""
        return self._found.precision

    def peak_flops(self, precision: str) -> float | None:
        """Return the peak FLOPs per second of all replicas; None if unknown."""
        if self.platform == "cpu":
            of_process = peak_flops(self.strategy, precision)
            return of_process and of_process * self._num_processes
        of_one = _peak_flops(self.devices[0].device_kind)
        return of_one * self.replicas if of_one and precision == "mixed_bfloat16" else None

    def start(self, step: Step) -> None:
        """Prepare to run `step`, which is compiled for its first batch."""
        assert isinstance(step, TrainStep)
        self._step, self._variables = step, variables_of(step)
        self._state = self._sharded = None

    def batches(self, config: PretrainConfig, records: Records | Mixture, first: int) -> Iterator:
        """Return this process's part of the batches from number `first` on."""
        return self._dataset(config, records, first).as_numpy_iterator()

    def _dataset(
        self, config: PretrainConfig, records: Records | Mixture, first: int
    ) -> tf.data.Dataset:
        dataset = training_batches(
            records,
            config.objective.of_pairs,
            config.masking,
            config.loop.global_batch_size,
            config.seed,
            first,
            self._num_processes,
            self._process,
            schedule_steps=config.schedule_steps,
        )
        local = self.replicas // self._num_processes
        self._specs = {
            name: tf.TensorSpec([spec.shape[0] // local, *spec.shape[1:]], spec.dtype)
            for name, spec in dataset.element_spec.items()
        }
        return dataset

    @property
    def memory(self) -> int | None:
        """The bytes of memory of a device; None for a CPU."""
        local = self._jax.local_devices(backend=self.platform)[0]
        return (local.memory_stats() or {}).get("bytes_limit")

    def check_memory(
        self, config: PretrainConfig, records: Records | Mixture, make_step: Callable[..., Step]
    ) -> None:
        """Compile the steps of a run, whose record files are not read, and check their size.

        Raises:
          InputError: they do not fit the memory of a device.
        """
        if self.memory is None:
            return
        make_model = functools.partial(AlbertPretrainer, heads=config.heads)
        self._dataset(config, records, 0)  # for the shapes of a batch
        self.start(make_step(*without_values(config, make_model), config, self.parallel_parts))
        step, count = self._sharded_step(), steps_per_call(config.loop.steps_per_loop)
        size, _ = compile_lowered(step.lower(count), step.argument_bytes(count))
        if size.total > self.memory:
            raise InputError(
                f"a step takes {gb(size.total)} on each {self.devices[0].device_kind}, which has "
                f"{gb(self.memory)}: {verdict(size.total, self.memory)}. Choose a smaller "
                "`loop.global_batch_size`, or --set loop.accumulation_steps=PARTS or "
                "--set model.rematerialize=true."
            )

    def _sharded_step(self) -> ShardedStep:
        if self._sharded is None:
            joined = JoinedStep.of(self._step, self._specs, self.platform)
            self._sharded = ShardedStep(joined, self.devices, self._options)
        return self._sharded

    def run_steps(self, batches: Iterator, count: int) -> tuple[Mapping[str, float], np.ndarray]:
        """Run steps; return sums over them and, float32 [count], 1 for each skipped step.

        The next batches are put on the devices while the steps before run.
        """
        at_once = steps_per_call(count)
        step = self._sharded_step()
        if self._state is None:
            values = [variable.numpy() for variable in self._variables]
            self._state = step.put_state(values)
        rows = []
        for _ in range(count // at_once):
            stacked = _stack([next(batches) for _ in range(at_once)])
            self._state, results = step(self._state, step.put_batch(stacked))
            rows.append(results)
        self._is_ahead = True
        table = np.concatenate(self._jax.device_get(rows))  # [count, len(results)]
        self._assign(lambda variable: variable.shape.rank == 0)  # steps and rate, for the log
        sums = table.sum(0).tolist()
        return dict(zip(self._step.results, sums, strict=True)), table[:, -1]

    def to_variables(self) -> None:
        """Bring the variables of model and optimizer up to date with the steps."""
        if self._state is not None and self._is_ahead:
            self._assign(lambda variable: True)
            self._is_ahead = False

    def from_variables(self) -> None:
        """Continue with the variables of model and optimizer, which were restored."""
        self._state = None

    def _assign(self, is_wanted: Any) -> None:
        pairs = zip(self._variables, self._state or (), strict=True)
        wanted = [(variable, value) for variable, value in pairs if is_wanted(variable)]
        values = self._jax.device_get([value for _, value in wanted])
        for (variable, _), value in zip(wanted, values, strict=True):
            variable.assign(value)

    def any_process(self, flag: bool) -> bool:
        """Return True if any process passes True; all must call it together."""
        return bool(self._of_all(np.array(flag)).any())

    def agree(self, text: str) -> bool:
        """Return True if all processes pass the same text; all must call it together."""
        return bool((self._of_all(digest_of(text)) == digest_of(text)).all())

    def _of_all(self, value: np.ndarray) -> np.ndarray:
        """Return the values [processes, ...] of all processes, which must call it together."""
        if self._num_processes == 1:
            return value[None]
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(value)

    def profiled(self, path: str) -> contextlib.AbstractContextManager:
        """Profile a block for TensorBoard."""
        return self._jax.profiler.trace(path)


def _stack(batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def _peak_flops(kind: str) -> float | None:
    """Return the peak of a device that JAX names `kind`: NVIDIA H200, TPU v5 lite, TPU v5 (p)."""
    return peak_of(re.sub("TPU v5$", "TPU v5p", kind.replace(" lite", "e")))


def _await(address: str) -> None:
    """Wait until a process listens at HOST:PORT: jax would abort if none did in time."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + _REACH_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except (OSError, ValueError, OverflowError) as error:
            if time.monotonic() > end or not isinstance(error, OSError):
                raise InputError(
                    f"--device=multi_worker --runtime=pjrt: no process answers at {address}, the "
                    f"first of TF_CONFIG ({error}). Start it, or correct the address."
                ) from None
        time.sleep(1)


def _join_processes(jax: Any) -> None:
    """Join the processes that TF_CONFIG lists or, without it, those that jax finds by itself."""
    given: dict[str, Any] = {}
    if text := os.environ.get("TF_CONFIG"):
        devices.check_tf_config(text)
        tf_config = json.loads(text)
        cluster, task = tf_config["cluster"], tf_config["task"]
        workers = [address for role in devices.ROLES for address in cluster.get(role, ())]
        offset = len(cluster.get("chief", ())) if task["type"] == "worker" else 0
        given = {
            "coordinator_address": workers[0],
            "num_processes": len(workers),
            "process_id": offset + task["index"],
        }
        if given["process_id"]:
            _await(workers[0])
    try:
        with process_end.handlers_kept():
            jax.distributed.initialize(**given)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            "--device=multi_worker --runtime=pjrt: jax.distributed could not join the processes: "
            f"{sentence(error)} Describe them in TF_CONFIG."
        ) from None
