"""FinetuneConfig: everything a fine-tuning run depends on besides its data."""

import dataclasses
import math
from typing import Annotated, Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, Bounded, between, one_of
from albert_tf.runtime.devices import PRECISIONS
from albert_tf.runtime.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Bounded):
    """AdamW with linear warm-up and decay; the paper's values of each task are its recipe.

    epochs: passes over the training examples, unless `steps` is given.
    steps: optimizer steps.
    warmup_fraction: of all steps, unless `warmup_steps` is given.
    evaluate_every: steps between two readings of the dev examples; by default once an epoch, or in
      EVALUATIONS equal parts of a run of fewer epochs. The best weights are kept.
    metric: the score on the dev examples by which weights are the best, the higher the better; None
      is the task's first.
    patience: readings without a better one after which the run ends; by default it goes on.
    bias_correction: Adam's own. The recipes are without, as BERT and ALBERT were; some seeds then
      learn nothing (arXiv 2006.04884).
    layer_decay: the learning rate of a layer over that of the layer above it. Weights that several
      layers share have the rate of the highest of them.
    frozen: how many layers stay as they are, from the lowest: 1 the embeddings, 2 also the first
      encoder layer. Weights that a higher layer shares do not.
    pad_to_longest: pad a batch to its longest example, in steps of 32 pieces, instead of
      `task.seq_length`. Never on a TPU, which compiles a program for each shape.
    accumulation_steps: parts that a replica's batch is computed in, one after the other, for one
      update: the same training in less memory.
    threshold_share: of SQuAD 2.0, the share of the training contexts that are left out of training,
      to choose `task.null_threshold` on; 0: it stays what it is.
    """

    KEY = "`training.{}`"

    epochs: Annotated[float, POSITIVE] = 3.0
    steps: Annotated[int | None, POSITIVE] = None
    batch_size: Annotated[int, POSITIVE] = 32
    learning_rate: Annotated[float, POSITIVE] = 1e-4
    warmup_fraction: Annotated[float, between("[0, 1)")] = 0.1
    warmup_steps: Annotated[int | None, NOT_NEGATIVE] = None
    weight_decay_rate: Annotated[float, NOT_NEGATIVE] = 0.01
    clip_norm: Annotated[float, POSITIVE] = 1.0
    bias_correction: bool = True
    layer_decay: Annotated[float, between("(0, 1]")] = 1.0
    frozen: Annotated[int, NOT_NEGATIVE] = 0
    evaluate_every: Annotated[int | None, POSITIVE] = None
    metric: str | None = None
    patience: Annotated[int | None, POSITIVE] = None
    pad_to_longest: bool = True
    accumulation_steps: Annotated[int, POSITIVE] = 1
    threshold_share: Annotated[float, between("[0, 1)")] = 0.0
    precision: Annotated[str, one_of(*PRECISIONS)] = "auto"

    def check_batch(self, replicas: int) -> None:
        """ConfigError: the batch cannot be divided among the replicas and the parts of each."""
        if self.batch_size % (replicas * self.accumulation_steps):
            raise ConfigError(
                "`training.batch_size` must be a multiple of the replicas times "
                f"`training.accumulation_steps`. Received: {self.batch_size}, of {replicas} x "
                f"{self.accumulation_steps}."
            )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(Bounded):
    """The resolved tree is what a run's config.json holds; `task` is a section of its kind's."""

    model: AlbertConfig
    task: Any
    training: TrainingConfig = TrainingConfig()
    seed: Annotated[int, between("[0, 2^31)")] = 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run in steps: all of them, those of the warm-up, those between two evaluations."""

    steps: int
    warmup_steps: int
    evaluate_every: int

    EVALUATIONS = 5

    @staticmethod
    def of(training: TrainingConfig, num_units: int) -> "Plan":
        """The plan for so many training units.

        Raises:
          ConfigError: a warm-up that is longer than the run.
        """
        epoch = math.ceil(num_units / training.batch_size)
        steps = training.steps or math.ceil(training.epochs * num_units / training.batch_size)
        warmup = training.warmup_steps
        if warmup is None:
            warmup = round(steps * training.warmup_fraction)
        if warmup >= steps:
            raise ConfigError(
                "`training.warmup_steps` must be fewer than the steps of the run. "
                f"Received: {warmup}, and {steps} steps."
            )
        every = training.evaluate_every or min(epoch, math.ceil(steps / Plan.EVALUATIONS))
        return Plan(steps, warmup, min(every, steps))
