"""Names and layouts of our weights in other projects' formats."""

import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np

from albert_tf.convert.bundle import MismatchPolicy, Weights, weight_shapes
from albert_tf.models.checkpoints import weight_differences
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.task_settings import TaskSettings


def numberless(name: str) -> str:
    """Return `name` with each number in its path replaced by `#`, so that layers share names."""
    return re.sub(r"/\d+/", "/#/", name)


@dataclasses.dataclass(frozen=True)
class Naming:
    """The names that another project gives our weights.

    Attributes:
      parts: our layer, or individually named weight, -> their name; `#` stands for a number.
      leaves: our kernel, bias, gamma and beta -> the endings of their names.
      is_transposed: returns True for our names of the matrices that they store transposed.
    """

    parts: Mapping[str, str]
    leaves: Mapping[str, str]
    is_transposed: Callable[[str], bool]

    def name(self, ours: str) -> str:
        """Return their name for our weight.

        >>> from albert_tf.convert.google import GOOGLE
        >>> GOOGLE.name("encoder/pooler/kernel")
        'bert/pooler/dense/kernel'
        """
        pattern, numbers = numberless(ours), re.findall(r"/(\d+)/", ours)
        if pattern in self.parts:
            name = self.parts[pattern]
        else:
            layer, leaf = pattern.rsplit("/", 1)
            name = self.parts[layer] + self.leaves[leaf]
        return name.replace("#", *numbers) if numbers else name

    def from_ours(self, weights: Weights) -> dict[str, np.ndarray]:
        """Return our weights under their names, in their layout."""
        return {self.name(name): self._transposed(name, array) for name, array in weights.items()}

    def to_ours(
        self,
        config: AlbertConfig,
        tensors: Weights,
        policy: MismatchPolicy,
        source: str,
        task: TaskSettings | None = None,
    ) -> dict[str, np.ndarray]:
        """Return their weights under our names, in our layout, as float32.

        Raises:
          InputError: names or shapes differ from the configuration's; the message lists them.
        """
        shapes = weight_shapes(config, task)
        names = {
            ours: self.name(ours)
            for ours in shapes
            if self.name(ours) in tensors or not policy.allows_missing(ours)
        }
        expected = {
            name: shapes[ours][::-1] if self.is_transposed(ours) else shapes[ours]
            for ours, name in names.items()
        }
        wrong = weight_differences(expected, {name: array.shape for name, array in tensors.items()})
        if wrong:
            raise InputError(
                f"{source!r} must hold the weights that its configuration describes: {wrong} If "
                "the difference is intended, --allow_missing=mlm_head,pair_head,pooler gives "
                "missing parts random weights, and --ignore=PREFIX skips unexpected weights."
            )
        return {ours: self._transposed(ours, tensors[name]) for ours, name in names.items()}

    def _transposed(self, ours: str, array: np.ndarray) -> np.ndarray:
        result = array.T if self.is_transposed(ours) else array
        return np.ascontiguousarray(result, np.float32)  # safetensors writes raw memory
