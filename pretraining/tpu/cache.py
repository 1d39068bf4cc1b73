"""A cache of compiled sizes on disk, so that no program is compiled twice.

The folder is $XDG_CACHE_HOME/albert_tf/tpu_check, by default ~/.cache/albert_tf/tpu_check. It has
one JSON file per program, named by a hash of everything that determines the program.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from albert_tf.runtime import programs, settings
from albert_tf.runtime.environment import version_of
from albert_tf.runtime.files import outputs, paths
from pretraining.pjrt.compiled import CompiledSize
from pretraining.tpu.step import Step

PACKAGES = ("tensorflow", "tf-keras", "tf-models-official", "jax", "jaxlib", "libtpu")
_ROOTS = {programs.root("albert_tf"), programs.root("pretraining")}  # differ in a wheel
# The sources of the step: a change in any of them changes the program.
SOURCES = (
    "albert_tf/models/*.py",
    "albert_tf/models/kernels/*.py",
    "albert_tf/models/layers/*.py",
    "albert_tf/optimization/*.py",
    "albert_tf/runtime/devices.py",
    "albert_tf/runtime/keyed_random.py",
    "albert_tf/training/step.py",
    "benchmarks/tpu_step.py",
    "benchmarks/systems/tf_models_official.py",
    "pretraining/loop/losses.py",
    "pretraining/loop/train_step.py",
    "pretraining/pjrt/compiled.py",
    "pretraining/pjrt/joined_step.py",
    "albert_tf/training/jax_program.py",
    "pretraining/tpu/cost_model.py",
    "pretraining/tpu/lowering.py",
    "pretraining/tpu/step.py",
)

Compile = Callable[[Step, str], CompiledSize]


def folder(system: str = "") -> str:
    """Return the cache folder; `system` is the project whose model is compiled, if not ours."""
    return paths.cache_folder("tpu_check", system)


def program_key(step: Step, topology: str) -> dict[str, Any]:
    """Return everything that determines the program and the compiler.

    Learning rates, numbers of steps and seeds are left out: they only change constants in it.
    """
    config = step.config
    return {
        "model": settings.to_dict(config.model),
        "optimizer": config.optimizer.name,
        "heads": [settings.to_dict(head) for head in config.heads],
        "precision": config.precision,
        "parts": step.parts,
        "steps": step.steps_per_call,
        "kernels": config.loop.kernels,
        "shape": [step.batch, step.seq_length, step.num_predictions],
        "topology": topology,
        "quick": step.quick,
        "versions": {name: version_of(name) for name in PACKAGES},
        "sources": _sources(),
    }


@dataclasses.dataclass(frozen=True)
class Cache:
    """A `compile` function that looks into the folder first."""

    compile: Compile
    folder: str

    def path(self, step: Step, topology: str) -> str:
        """Return the path of a program's file."""
        key = json.dumps(program_key(step, topology), sort_keys=True)
        return os.path.join(self.folder, hashlib.sha256(key.encode()).hexdigest()[:32] + ".json")

    def __call__(self, step: Step, topology: str) -> CompiledSize:
        """Return the size of the step; compile it only if no file has it."""
        path = self.path(step, topology)
        try:
            return CompiledSize(**outputs.read_json(path)["size"])
        except (OSError, ValueError, KeyError, TypeError):  # absent or incomplete
            os.makedirs(self.folder, exist_ok=True)  # compiling takes minutes: fail before
            size = self.compile(step, topology)
        entry = {"program": program_key(step, topology), "size": size._asdict()}
        outputs.write_json(path, entry)
        return size


@functools.cache
def _sources() -> str:
    roots = [pathlib.Path(root) for root in _ROOTS]
    files = sorted(path for root in roots for pattern in SOURCES for path in root.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
