"""A training step on a TPU chip: quantities from formulas and from the compiler."""

import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from albert_tf.models.config import AlbertConfig, head_param_counts, layer_flops
from albert_tf.models.head import Head
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import OPTIMIZERS, AdamW
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.peak_flops import PEAK_FLOPS
from pretraining.loop.config import PretrainConfig
from pretraining.loop.training_log import step_flops
from pretraining.pjrt.compiled import GIB
from pretraining.pjrt.joined_step import steps_per_call

# Pieces in a chunk of a recomputed layer: enough rows for full speed, with little to keep.
CHUNK_PIECES = 4096


class Chip(NamedTuple):
    """One chip.

    Attributes:
      layout: the smallest layout of chips that libtpu accepts.
      hbm: the bytes that the compiler grants a program.
      flops: the peak in bfloat16, per second.
      clock_hz: cycles of the matrix units per second.
      bandwidth: bytes per second that it sends to its neighbours in an all-reduce.
    """

    layout: str
    hbm: int
    flops: float
    clock_hz: float
    bandwidth: float


# hbm is the limit in the errors of libtpu 0.0.42.1. The peak is clock_hz x 2 x the multipliers of
# the matrix units: v5e four units of 128 x 128, v4 and v5p eight, v6e four of 256 x 256. The
# bandwidth is the pod's for all-reduces over its chips (v4 1.1 PB/s over 4,096, v5e 51.2 TB/s and
# v6e 102.4 TB/s over 256) or half of a chip's for both directions (v5p 1.2 TB/s), all as published
# in cloud.google.com/tpu/docs/v4, v5e, v5p and v6e.
CHIPS = {
    "v4": Chip("2x2x1", int(30.75 * GIB), PEAK_FLOPS["v4"], 1.05e9, 270e9),
    "v5e": Chip("2x2", int(15.75 * GIB), PEAK_FLOPS["v5e"], 1.5e9, 200e9),
    "v5p": Chip("2x2x1", int(95.74 * GIB), PEAK_FLOPS["v5p"], 1.75e9, 600e9),
    "v6e": Chip("2x2", int(31.25 * GIB), PEAK_FLOPS["v6e"], 1.75e9, 400e9),
}


def parse_topology(name: str) -> tuple[str, Chip]:
    """Return the name with its layout, and the chip, of a topology such as `v5e` or `v5e:2x4`.

    Raises:
      InputError: the generation of the chip is unknown.
    """
    generation, _, layout = name.partition(":")
    if generation not in CHIPS:
        raise InputError(
            f"--topology must be one of {', '.join(CHIPS)}, with or without a layout (v5e:2x2). "
            f"Received: {name!r}."
        )
    return f"{generation}:{layout or CHIPS[generation].layout}", CHIPS[generation]


@functools.lru_cache(64)
def _slots(model: AlbertConfig, heads: tuple[Head, ...], optimizer: str) -> int:
    if OPTIMIZERS[optimizer].has_v is AdamW.has_v:
        return 2 * (model.param_count() + sum(head_param_counts(model, heads).values()))
    with tf.Graph().as_default():  # variables without values
        variables = AlbertPretrainer(model, heads=heads).create_weights().trainable_variables
    has_v = OPTIMIZERS[optimizer](0.0).has_v
    return sum(v.shape.num_elements() * (1 + has_v(v)) for v in variables)


@dataclasses.dataclass(frozen=True)
class Step:
    """One replica's step, as it is compiled.

    Attributes:
      batch: sequences on a chip.
      quick: compile with the least effort, for a fast estimate. Training runs another program.
    """

    config: PretrainConfig
    batch: int
    seq_length: int
    num_predictions: int
    quick: bool = False

    @property
    def model(self) -> AlbertConfig:
        """The model that is trained."""
        return self.config.model

    @property
    def parts(self) -> int:
        """The number of parts over which gradients are accumulated."""
        return self.config.loop.accumulation_steps

    @property
    def steps_per_call(self) -> int:
        """The number of steps of the program."""
        return steps_per_call(self.config.loop.steps_per_loop)

    @property
    def unit(self) -> int:
        """The number of which the batch must be a multiple."""
        return self.parts * self.model.rematerialize_chunks

    @property
    def parameters(self) -> int:
        """The number of parameters of encoder and heads."""
        heads = head_param_counts(self.model, self.config.heads)
        return self.model.param_count() + sum(heads.values())

    @property
    def fixed_bytes(self) -> int:
        """Bytes that every batch needs: parameters, gradients and the optimizer's slots."""
        return 8 * self.parameters + 4 * self.slots

    @property
    def slots(self) -> int:
        """The optimizer's numbers: two for a parameter, one for those of Muon's matrices."""
        return _slots(self.model, self.config.heads, self.config.optimizer.name)

    def sized(self, batch: int, recompute: bool, parts: int = 1) -> "Step":
        """Return the step with another batch and another way to compute it.

        With `recompute`, chunks have about CHUNK_PIECES pieces.
        """
        at_once = max(1, CHUNK_PIECES // self.seq_length)
        chunk = max(n for n in range(1, at_once + 1) if batch // parts % n == 0)
        model = dataclasses.replace(
            self.model,
            rematerialize=recompute,
            rematerialize_chunks=batch // parts // chunk if recompute else 1,
        )
        loop = dataclasses.replace(self.config.loop, accumulation_steps=parts)
        config = dataclasses.replace(self.config, model=model, loop=loop)
        return dataclasses.replace(self, config=config, batch=batch)

    @property
    def flags(self) -> str:
        """The flags that make `pretraining.train` compute the step in the same way."""
        values = {
            "model.rematerialize": self.model.rematerialize and "true",
            "model.rematerialize_chunks": self.model.rematerialize_chunks,
            "loop.accumulation_steps": self.parts,
        }
        return " ".join(
            f"--set {key}={value}" for key, value in values.items() if value not in (False, 1)
        )

    @property
    def flops(self) -> float:
        """Model FLOPs of the forward and backward pass."""
        return step_flops(self.model, self.batch, self.seq_length, self.num_predictions)

    @property
    def recomputed_flops(self) -> float:
        """FLOPs of a second forward pass of the layers, if they are recomputed."""
        model = self.model
        layers = model.num_layers * layer_flops(model, self.seq_length, self.seq_length)
        return float(self.batch * layers * model.rematerialize)

    def share_of_peak(self, chip: Chip, step_s: float) -> float:
        """Return the share of the chip's peak, from 0 to 1, of a step that takes `step_s`."""
        return self.flops / chip.flops / step_s

    def all_reduce_s(self, chip: Chip) -> float:
        """Return the seconds that the all-reduce of the float32 gradients takes by formula.

        On a ring of many chips, each sends the gradients twice: once to sum, once to distribute.
        """
        return 2 * 4 * self.parameters / chip.bandwidth

    def estimate_activation_bytes(self) -> int:
        """Return roughly the bytes of activations for the backward pass; logits are float32.

        Plain layers keep, per piece and layer, about 8 hidden vectors, two feed-forward vectors and
        the attention probabilities. Recomputed layers keep their inputs, and one chunk of a layer
        with its gradients.
        """
        model, batch = self.model, self.batch // self.parts
        width = 2 if self.config.precision == "mixed_bfloat16" else 4
        layer = 8 * model.hidden_size + 2 * model.intermediate_size
        layer += model.num_heads * self.seq_length
        pieces = batch * self.seq_length
        activations = pieces * model.num_layers * layer
        if model.rematerialize:
            chunk = pieces // model.rematerialize_chunks
            activations = pieces * (model.num_layers + 1) * model.hidden_size + 2 * chunk * layer
        return width * activations + 8 * batch * self.num_predictions * model.vocab_size
