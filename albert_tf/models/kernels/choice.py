"""The choice of the operations that a call uses, by the device and by whether it trains.

Reasons, with numbers in docs/log/training.md, gpu.md and tpu.md:

- Outside training, the plain operations run everywhere: there is no gradient to save. A model that
  is not to be unrolled has its layers in a loop.
- CPU: GELU, LayerNorm and the cross-entropy with their gradients take two to three times as long
  with TensorFlow's operations ("Fused element-wise operations", 2026-11-21), and padding is not
  computed ("Parts side by side", 2026-11-23).
- XLA, one program for a whole step (PJRT on CPUs and GPUs): the same, in less memory than a tape;
  on a GPU 18.1 instead of 19.2 ms a step, and no gain without its barriers.
- GPU under TensorFlow: the plain operations; the others were not measured there.
- TPU: fewer passes over memory by libtpu's own estimate (`pretraining.tpu_check`); never run.
"""

from albert_tf.models.kernels import KERNELS, target_kind
from albert_tf.models.kernels.cpu import CpuKernels
from albert_tf.models.kernels.fused import FusedKernels
from albert_tf.models.kernels.interface import LOOPED, PLAIN, Kernels
from albert_tf.models.kernels.tpu import TpuKernels

TRAINING = {"CPU": CpuKernels(), "GPU": PLAIN, "TPU": TpuKernels(), "XLA": FusedKernels()}


def choose(training: bool, name: str = "auto", unroll: bool = True) -> Kernels:
    """Return the operations for the device that the present trace is for.

    Args:
      training: True for gradients.
      name: one of `kernels.KERNELS`; `plain` for TensorFlow's own operations on every device.
      unroll: False for a loop over the layers outside training.

    Raises:
      ValueError: there is no such name.
    """
    if name not in KERNELS:
        raise ValueError(f"`kernels` must be one of {', '.join(KERNELS)}. Received: {name!r}.")
    if training:
        return TRAINING[target_kind()] if name == "auto" else PLAIN
    return PLAIN if unroll else LOOPED
