"""The memory that a compiled program takes on a device."""

import re
from typing import Any, NamedTuple

GIB = 2**30
_REFUSAL = re.compile(r"temporaries \(([\d.]+)([KMG])\)")


class CompiledSize(NamedTuple):
    """Bytes on one chip, and the seconds that a step will take.

    Attributes:
      arguments: weights, optimizer slots and batch; outputs overwrite them.
      temporaries: memory that is in use only during a step.
      code: the program.
      refused: True if the compiler gave up because the temporaries alone exceed the chip's memory.
      step_s: seconds per step, as estimated by the compiler; 0 if it did not.
    """

    arguments: int
    temporaries: int
    code: int
    refused: bool = False
    step_s: float = 0.0

    @property
    def total(self) -> int:
        """The bytes that the step takes on a chip."""
        return self.arguments + self.temporaries + self.code


def compile_lowered(lowered: Any, argument_bytes: int) -> tuple[CompiledSize, Any]:
    """Compile what `jax.jit` lowered; return the size on a device and the program.

    Args:
      lowered: a `jax.stages.Lowered`.
      argument_bytes: of the arguments on a device, for the size if the compiler gives up.

    Returns:
      The size, and the `jax.stages.Compiled`, or None if the compiler gave up.
    """
    try:
        compiled = lowered.compile()
    except Exception as error:
        refusal = _REFUSAL.search(str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) or refusal is None:
            raise
        temporaries = int(float(refusal[1]) * {"K": 2**10, "M": 2**20, "G": GIB}[refusal[2]])
        return CompiledSize(argument_bytes, temporaries, 0, refused=True), None
    memory = compiled.memory_analysis()
    # Outputs that are not updated in place exist besides the arguments when the program ends.
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    size = CompiledSize(
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes + new,
        memory.generated_code_size_in_bytes,
    )
    return size, compiled


def verdict(needed: float, memory: float) -> str:
    """Return whether a program fits the memory of a device, and how well."""
    free = memory - needed
    return f"fits, {gb(free)} free" if free >= 0 else f"does not fit, {gb(-free)} too large"


def gb(size: float) -> str:
    """Return a size as text, in units of 10^9 bytes."""
    return f"{size / 1e9:.2f} GB"
