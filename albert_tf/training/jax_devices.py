"""The devices of JAX's client, and how TensorFlow's programs are compiled for them."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.runtime import devices, extras
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import paths
from albert_tf.training.jax_program import check_programs, load_jax

# On a GPU, sums by atomic additions are in no order. (`xla_gpu_deterministic_ops` would also choose
# kernels without timing them: a step of albert-mini takes 5.1 ms instead of 4.7 ms.)
_DETERMINISTIC = {"xla_gpu_exclude_nondeterministic_ops": True}
# On a CPU, reductions of YNNPACK are wrong for some shapes (jax 0.10.2; jax-ml/jax 39103), and with
# several threads not the same in each call (0.11.0; 39741).
_OPTIONS_OF_CPU = {"xla_cpu_experimental_ynn_fusion_type": ""}


class JaxDevices:
    """The devices of one kind that JAX finds.

    TensorFlow makes the batches and holds the variables, on the CPU: call this before it computes
    anything.

    Args:
      device: `auto` uses JAX's own choice; `cpu`, `gpu` or `tpu` use all devices of that kind; and
        `multi_worker` uses all devices of the processes that `join` has joined.
      deterministic: use only kernels that give the same bits each time.
      join: called with jax before it looks for devices.

    Attributes:
      jax: the module.
      devices: of all processes.
      platform: cpu, gpu or tpu.
      options: XLA's options; None for its own.
      strategy: of TensorFlow's variables.

    Raises:
      InputError: jax or the device is absent, or jax does not go with this TensorFlow.
    """

    def __init__(
        self, device: str, deterministic: bool = True, join: Callable[[Any], None] | None = None
    ) -> None:
        devices.check_device(device)
        self.jax = load_jax()
        if device == "cpu":
            self.jax.config.update("jax_platforms", "cpu")  # else jax would start a TPU's library
        for kind in ("GPU", "TPU"):
            with contextlib.suppress(RuntimeError, ValueError):  # already started; unknown kind
                tf.config.set_visible_devices([], kind)
        if join:
            join(self.jax)
        self.devices = _find(self.jax, device)
        self.platform = self.devices[0].platform
        if self.platform != "cpu" and not self.jax.config.jax_compilation_cache_dir:
            # The compiler times kernels to choose among them. A restart must have the same ones.
            self.jax.config.update("jax_compilation_cache_dir", paths.cache_folder("pjrt"))
        if deterministic:
            devices.make_deterministic()  # TensorFlow evaluates
            tf.random.set_seed(0)  # without one, it would refuse to draw what is replaced later
        self.strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        check_programs()
        of_gpu = _DETERMINISTIC if deterministic else None
        self.options = {"cpu": _OPTIONS_OF_CPU, "gpu": of_gpu}.get(self.platform)

    @property
    def precision(self) -> str:
        """The fastest precision on the devices."""
        if self.platform == "cpu":
            return devices.resolve_precision("auto", "cpu")
        if self.platform == "tpu":
            return "mixed_bfloat16"
        capability = str(getattr(self.devices[0], "compute_capability", ""))
        is_old = capability[:1].isdigit() and float(capability) < 8.0  # AMD's are such as gfx942
        return "float32" if is_old else "mixed_bfloat16"


def sentence(error: Exception) -> str:
    """Return the first line of an error with one full stop."""
    return str(error).partition("\n")[0].rstrip(". ") + "."


def _find(jax: Any, device: str) -> list[Any]:
    """Return the devices of all processes."""
    kind = None if device in ("auto", "multi_worker") else device
    try:
        return jax.devices(kind)
    except RuntimeError as error:
        extra = f"pjrt-{kind}" if kind in ("gpu", "tpu") else "pjrt"
        raise InputError(
            f"--device={device} --runtime=pjrt: jax finds no such device: "
            f"{sentence(error)} Run {extras.install(extra)}, or pass --device=cpu."
        ) from None
