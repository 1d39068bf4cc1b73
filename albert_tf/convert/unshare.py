"""Initialization of a grouped or unshared model from one whose layers share more."""

import re
from collections.abc import Sequence

import numpy as np

from albert_tf.convert.bundle import Weights, weight_shapes
from albert_tf.models.config import AlbertConfig, sharing_plan
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.task_settings import TaskSettings


def init_groups_from_shared(
    weights: Weights, source: AlbertConfig, target: AlbertConfig, task: TaskSettings | None = None
) -> dict[str, np.ndarray]:
    """Return the weights of `target`, each copied from the same layer of `source`.

    Both models compute the same outputs until they are trained further. `task` is the `task`
    section of a fine-tuned model; its head is copied unchanged.

    Raises:
      InputError: the numbers of layers differ, or layers with different weights in the source would
        share weights in the target.
    """
    if source.num_layers != target.num_layers:
        raise InputError(
            "--init_groups_from_shared needs as many layers as the source has. "
            f"Received: {target.num_layers} layers; the source has {source.num_layers}."
        )
    before, after = sharing_plan(source), sharing_plan(target)
    origin = {
        "attentions": _origins([p.attention for p in before], [p.attention for p in after]),
        "feed_forwards": _origins([p.ffn for p in before], [p.ffn for p in after]),
    }

    def name_in_source(name: str) -> str:
        return re.sub(
            r"(attentions|feed_forwards)/(\d+)/",
            lambda match: f"{match[1]}/{origin[match[1]][int(match[2])]}/",
            name,
        )

    return {
        name: weights[name_in_source(name)]
        for name in weight_shapes(target, task)
        if name_in_source(name) in weights
    }


def _origins(before: Sequence[int], after: Sequence[int]) -> dict[int, int]:
    """Map each sub-layer of the target to the source's: layer i uses before[i] and after[i]."""
    origins: dict[int, int] = {}
    for layer, (old, new) in enumerate(zip(before, after, strict=True)):
        if origins.setdefault(new, old) != old:
            raise InputError(
                f"layer {layer} would share weights with a layer whose weights differ in the "
                "source: weights can be copied, not merged. Choose a multiple of the source's "
                "`num_groups`, or less sharing."
            )
    return origins
