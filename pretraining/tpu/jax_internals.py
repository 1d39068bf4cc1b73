"""Private jax calls without a public equivalent: compiling StableHLO text for a chip.

`jax.experimental` compiles only what jax itself has traced. Checked with jax 0.10.2.
"""

from collections.abc import Sequence
from typing import Any


def compile_stablehlo(module: str, chips: Sequence[Any], effort: float) -> Any:
    """Return the executable of a module that every one of several devices runs as a replica.

    Args:
      module: the StableHLO text.
      chips: the devices of a topology of `jax.experimental.topologies`.
      effort: the effort of the compiler, from -1, the least, to 1.
    """
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = len(chips), 1
    options.executable_build_options.exec_time_optimization_effort = effort
    numbers = np.arange(len(chips))[:, None]
    options.device_assignment = xla_client.DeviceAssignment.create(numbers)
    devices = xla_client.DeviceList(tuple(chips))
    with mlir.make_ir_context():
        return chips[0].client.compile(ir.Module.parse(module), devices, options)
