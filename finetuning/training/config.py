"""FinetuneConfig: all that a fine-tuning run depends on, except its data."""

import dataclasses
import math
from typing import Annotated

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels import KERNELS
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, Bounded, between, one_of
from albert_tf.runtime.devices import PRECISIONS
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.task_settings import TaskSettings

RECIPES = ("paper", "few_labels", "none")  # of the commands


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Bounded):
    """Settings of AdamW with linear warm-up and decay; a task's recipe holds the paper's values.

    Attributes:
      epochs: passes over the training examples, unless `steps` is set.
      steps: optimizer steps.
      warmup_fraction: the share of the steps that warm up, unless `warmup_steps` is set.
      evaluate_every: steps between two evaluations of the dev examples. By default one epoch, but
        at most 1 / `Plan.EVALUATIONS` of the run. The best weights are kept.
      metric: the dev score that chooses the best weights; higher is better. None: the task's first.
      patience: evaluations without improvement after which the run stops. None: it never stops
        early.
      bias_correction: Adam's bias correction. The recipes switch it off, as BERT and ALBERT did;
        some seeds then learn nothing (arXiv 2006.04884).
      layer_decay: the learning rate of a layer divided by that of the layer above it. Weights that
        several layers share use the rate of the highest one.
      frozen: the number of layers that are not trained, from the lowest: 1 for the embeddings, 2
        for the first encoder layer too. Weights shared with a higher layer are still trained.
      pad_to_longest: pad a batch to its longest example, rounded up to a multiple of 32 pieces,
        instead of to `task.seq_length`. Never on a TPU, which compiles a program for each shape.
      group_by_length: make batches of examples of similar lengths, so that less of them is padding.
        It has no use if all are padded to `task.seq_length`.
      accumulation_steps: the number of parts of a replica's batch, which are computed one after the
        other for one update: the same training in less memory.
      class_weights: balanced, to weight the loss of each label by n / (k n_c), for n training
        examples with k different labels, n_c of them with this label; or none. Windows of long
        texts count as examples.
      threshold_share: the share of the training contexts (SQuAD 2.0) or texts (multi-label
        classification) that is held out of training to choose `task.null_threshold` or
        `task.thresholds` for the best F1; 0 leaves that setting unchanged.
      threshold_per_label: choose a threshold for each label, by its own F1, instead of one for all
        by the micro F1. A label with fewer than 5 held-out texts has the common threshold.
      calibrate: choose `task.logit_temperature`, by which the logits are divided, for the lowest
        log loss of the dev examples, or of those of `threshold_share`, so that probabilities are
        shares of right answers (arXiv 1706.04599). The label of a text that is read whole stays.
      kernels: auto, the operations that are fastest on the device; or plain, TensorFlow's own.
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
    group_by_length: bool = False
    accumulation_steps: Annotated[int, POSITIVE] = 1
    class_weights: Annotated[str, one_of("none", "balanced")] = "none"
    threshold_share: Annotated[float, between("[0, 1)")] = 0.0
    threshold_per_label: bool = False
    calibrate: bool = False
    precision: Annotated[str, one_of(*PRECISIONS)] = "auto"
    kernels: Annotated[str, one_of(*KERNELS)] = "auto"

    def check_batch(self, replicas: int) -> None:
        """Check that the batch can be divided among the replicas and the parts of each.

        Raises:
          ConfigError: it cannot.
        """
        if self.batch_size % (replicas * self.accumulation_steps):
            raise ConfigError(
                "`training.batch_size` must be a multiple of the number of replicas times "
                f"`training.accumulation_steps`. Received: {self.batch_size}, which is not a "
                f"multiple of {replicas} x {self.accumulation_steps}."
            )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(Bounded):
    """The resolved configuration, which a run's config.json holds.

    Attributes:
      task: a section of the task's kind.
    """

    model: AlbertConfig
    task: TaskSettings
    training: TrainingConfig = TrainingConfig()
    seed: Annotated[int, between("[0, 2^31)")] = 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of a run, those of its warm-up, and those between two evaluations."""

    steps: int
    warmup_steps: int
    evaluate_every: int

    EVALUATIONS = 5

    @staticmethod
    def of(training: TrainingConfig, num_units: int) -> "Plan":
        """Return the plan for a number of training units.

        Raises:
          ConfigError: the warm-up is not shorter than the run.
        """
        epoch = math.ceil(num_units / training.batch_size)
        exact = round(training.epochs * num_units / training.batch_size, 6)  # 1.1 * 10 is above 11
        steps = training.steps or max(1, math.ceil(exact))
        warmup = training.warmup_steps
        if warmup is None:
            warmup = min(round(steps * training.warmup_fraction), steps - 1)
        if warmup >= steps:
            raise ConfigError(
                "`training.warmup_steps` must be fewer than the steps of the run. "
                f"Received: {warmup}, and {steps} steps."
            )
        every = training.evaluate_every or min(epoch, math.ceil(steps / Plan.EVALUATIONS))
        return Plan(steps, warmup, min(every, steps))
