"""A training step on a TPU chip: what is counted by formula, beside what the compiler says."""

import dataclasses
from typing import NamedTuple

from albert_tf.models.config import AlbertConfig, head_param_counts
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError
from pretraining.loop.config import PretrainConfig
from pretraining.loop.flops import step_flops

GIB = 2**30
# Pieces that a recomputed layer handles at once: enough rows for full speed, little to keep.
CHUNK_PIECES = 4096


class Chip(NamedTuple):
    """One chip. hbm: bytes that the compiler lets a program have; flops: bfloat16, per second."""

    layout: str  # the smallest one that libtpu takes
    hbm: int
    flops: float
    bytes_per_s: float


# hbm as libtpu 0.0.42.1 says when it refuses; bytes_per_s from cloud.google.com/tpu/docs.
CHIPS = {
    "v4": Chip("2x2x1", int(30.75 * GIB), devices.PEAK_FLOPS["v4"], 1200e9),
    "v5e": Chip("2x2", int(15.75 * GIB), devices.PEAK_FLOPS["v5e"], 819e9),
    "v5p": Chip("2x2x1", int(95.74 * GIB), devices.PEAK_FLOPS["v5p"], 2765e9),
    "v6e": Chip("2x2", int(31.25 * GIB), devices.PEAK_FLOPS["v6e"], 1638e9),
}


def parse_topology(name: str) -> tuple[str, Chip]:
    """`v5e` or `v5e:2x4` -> the name with a layout, and its chip."""
    generation, _, layout = name.partition(":")
    if generation not in CHIPS:
        raise InputError(
            f"--topology must be {', '.join(CHIPS)}, with a layout or without (v5e:2x2). "
            f"Received: {name!r}."
        )
    return f"{generation}:{layout or CHIPS[generation].layout}", CHIPS[generation]


class CompiledSize(NamedTuple):
    """Bytes on one chip, and the seconds that the compiler took.

    arguments: weights, optimizer slots and batch; outputs take their place. temporaries: what lives
    during a step only. refused: the compiler gave up, since temporaries alone exceed the chip.
    """

    arguments: int
    temporaries: int
    code: int
    compile_s: float
    refused: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """One replica's step, as it is compiled: `batch` sequences on a chip.

    quick: for an answer soon, by a program that is not the one that will run.
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
        """Parts that gradients are accumulated over."""
        return self.config.loop.accumulation_steps

    @property
    def unit(self) -> int:
        """What the batch must be a multiple of."""
        return self.parts * self.model.rematerialize_chunks

    @property
    def parameters(self) -> int:
        """Of encoder and heads."""
        return self.model.param_count() + sum(head_param_counts(self.model).values())

    @property
    def all_reduce(self) -> int:
        """Bytes that a one-replica program does not show: a second copy of float32 gradients."""
        return 4 * self.parameters

    @property
    def fixed_bytes(self) -> int:
        """Bytes that no batch does without: parameters, two optimizer slots, the all-reduce."""
        return 12 * self.parameters + self.all_reduce

    def sized(self, batch: int, recompute: bool, parts: int = 1) -> "Step":
        """The same computed in another way; `recompute` in chunks of about CHUNK_PIECES pieces."""
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
        """What makes `pretraining.train` compute it so."""
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
        """Model FLOPs: forward and backward."""
        return step_flops(self.model, self.batch, self.seq_length, self.num_predictions)

    @property
    def recomputed_flops(self) -> float:
        """The layers' forward pass once more, if they are recomputed."""
        model, pieces = self.model, self.batch * self.seq_length
        products = 2 * model.hidden_size + model.intermediate_size + self.seq_length
        layers = 4 * model.hidden_size * products * model.num_layers * pieces
        return float(layers * model.rematerialize)

    def seconds(self, chip: Chip) -> float:
        """The least time of a step: products at the chip's peak, and with accumulation, for each
        part, the sums of float32 gradients read and written and the new ones read."""
        sums = 3 * 4 * self.parameters * self.parts if self.parts > 1 else 0
        return (self.flops + self.recomputed_flops) / chip.flops + sums / chip.bytes_per_s

    def estimate_activation_bytes(self) -> int:
        """Bytes of the activations that the backward pass needs, roughly; logits in float32.

        Plain, per piece and layer: about 8 hidden vectors, two of the feed-forward's, attention's
        probabilities. Recomputed: the layers' inputs, and a chunk of a layer with its gradients.
        """
        model, batch = self.model, self.batch // self.parts
        width = 2 if self.config.precision == "mixed_bfloat16" else 4
        layer = 8 * model.hidden_size + 2 * model.intermediate_size
        layer += model.num_heads * self.seq_length
        pieces = batch * self.seq_length
        kept = pieces * model.num_layers * layer
        if model.rematerialize:
            chunk = pieces // model.rematerialize_chunks
            kept = pieces * (model.num_layers + 1) * model.hidden_size + 2 * chunk * layer
        return width * kept + 8 * batch * self.num_predictions * model.vocab_size
