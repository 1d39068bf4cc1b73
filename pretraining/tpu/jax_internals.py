"""Private jax calls without a public equivalent: compiling StableHLO text for a chip.

`jax.experimental` compiles only what jax itself has traced. Checked with jax 0.10.2.
"""

from typing import Any


def compile_stablehlo(module: str, chip: Any, effort: float) -> Any:
    """Return the executable of a module for one device of a topology.

    Args:
      module: the StableHLO text.
      chip: a device of `jax.experimental.topologies`.
      effort: the effort of the compiler, from -1, the least, to 1.
    """
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    options.executable_build_options.exec_time_optimization_effort = effort
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
    with mlir.make_ir_context():
        return chip.client.compile(ir.Module.parse(module), xla_client.DeviceList((chip,)), options)
