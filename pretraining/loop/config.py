"""The configuration of a pretraining run: everything it depends on except its records."""

import dataclasses
from collections.abc import Iterable
from typing import Annotated

from albert_tf.models.config import AlbertConfig
from albert_tf.models.head import Head
from albert_tf.models.kernels import KERNELS
from albert_tf.optimization import OPTIMIZERS
from albert_tf.runtime import devices, settings
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, Bounded, between, one_of
from albert_tf.runtime.errors import ConfigError
from data.objectives.masked_lm import MaskedLm
from data.objectives.masking import MaskingConfig
from data.objectives.objective import Objective
from data.objectives.registry import ObjectiveConfig
from data.records.manifest import COMPACT, Manifest

_BATCH_SCALING = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}  # exponent of the batch-size ratio


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Bounded):
    """Optimizer settings; by default LAMB as the paper's authors ran it (paper section 4.1).

    Attributes:
      batch_scaling: how to scale the learning rate to a batch size other than the experiment's own:
        none; sqrt, by the root of the ratio, LAMB's rule (arXiv 1904.00962, section 4), with the
        same number of warm-up steps; or linear, by the ratio.
      schedule_steps: the step at which the learning rate reaches 0; 0 means `loop.steps`.
      decay_steps: the length of the decay, which ends at `schedule_steps`. Before the decay the
        learning rate is constant, so the end of a run can be decided late. 0 means that the decay
        begins at step 0, as in the paper.
      clip_norm: the global norm to which gradients are clipped.
    """

    KEY = "`optimizer.{}`"

    name: Annotated[str, one_of(*OPTIMIZERS)] = "lamb"
    learning_rate: Annotated[float, POSITIVE] = 0.00176
    batch_scaling: Annotated[str, one_of(*_BATCH_SCALING)] = "none"
    warmup_steps: Annotated[int, NOT_NEGATIVE] = 3125
    schedule_steps: Annotated[int, NOT_NEGATIVE] = 0
    decay_steps: Annotated[int, NOT_NEGATIVE] = 0
    weight_decay_rate: Annotated[float, NOT_NEGATIVE] = 0.01
    beta_1: Annotated[float, between("[0, 1)")] = 0.9
    beta_2: Annotated[float, between("[0, 1)")] = 0.999
    epsilon: Annotated[float, POSITIVE] = 1e-6
    clip_norm: Annotated[float, POSITIVE] = 1.0


@dataclasses.dataclass(frozen=True)
class LoopConfig(Bounded):
    """The length of training, its batches, and the intervals between logs, saves and exports.

    Attributes:
      accumulation_steps: the number of parts of a replica's batch that are computed one after the
        other for one update. More parts need less memory and, without dropout, give the same
        loss curve.
      steps_per_loop: steps inside one `tf.function`, or between two reports of JAX. Between loops,
        training writes metrics and reacts to SIGTERM.
      checkpoint_every: in steps; a multiple of `steps_per_loop`.
      export: when to export the encoder to the run's export/STEP: none; last; best, at each
        checkpoint if `evaluation.metric` has improved; or every:N, every N steps (a multiple of
        `checkpoint_every`) and at the end.
      deterministic: use only kernels that give the same bits each time. On a CPU their cost is too
        small to measure; on a GPU they are slower (docs/training.md).
      kernels: auto, the operations that are fastest on the device; or plain, TensorFlow's own.
    """

    KEY = "`loop.{}`"

    steps: Annotated[int, POSITIVE] = 125_000
    global_batch_size: Annotated[int, POSITIVE] = 4096
    accumulation_steps: Annotated[int, POSITIVE] = 1
    steps_per_loop: Annotated[int, POSITIVE] = 100
    checkpoint_every: Annotated[int, POSITIVE] = 1000
    keep_checkpoints: Annotated[int, POSITIVE] = 3
    export: str = "none"
    deterministic: bool = True
    kernels: Annotated[str, one_of(*KERNELS)] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        every = self.export_every
        if self.export not in ("none", "last", "best") and not every:
            raise ConfigError(
                "`loop.export` must be none, last, best or every:N, where N is a multiple of "
                f"`loop.checkpoint_every`. Received: {self.export!r}, {self.checkpoint_every}."
            )
        if self.checkpoint_every % self.steps_per_loop:
            raise ConfigError(
                "`loop.checkpoint_every` must be a multiple of `loop.steps_per_loop`. "
                f"Received: {self.checkpoint_every}, {self.steps_per_loop}."
            )

    @property
    def export_every(self) -> int:
        """N of `export=every:N` if it is a multiple of `checkpoint_every`; else 0."""
        kind, _, steps = self.export.partition(":")
        is_multiple = steps.isdigit() and int(steps) % self.checkpoint_every == 0
        return int(steps) if kind == "every" and is_multiple else 0


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Bounded):
    """The interval, metric and patience of held-out evaluation during training.

    Attributes:
      every: in steps, a multiple of `loop.steps_per_loop`; 0 means never.
      metric: the metric that selects the best checkpoint. Losses are better when lower, all other
        metrics when higher.
      patience: the number of evaluations without improvement after which training stops; 0 means
        never.
    """

    KEY = "`evaluation.{}`"

    every: Annotated[int, NOT_NEGATIVE] = 0
    metric: str = "loss/mlm"
    patience: Annotated[int, NOT_NEGATIVE] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience and not self.every:
            raise ConfigError(
                "`evaluation.patience` needs evaluations: set `evaluation.every` as well. "
                f"Received: {self.patience}, {self.every}."
            )


@dataclasses.dataclass(frozen=True)
class GuardConfig(Bounded):
    """Limits on skipped steps: a step whose loss or gradient is not finite changes no weights.

    Attributes:
      max_consecutive: if more steps in a row are skipped, the last checkpoint is restored and
        training continues on other data.
      max_restores: the number of restores allowed before training fails.
    """

    KEY = "`guard.{}`"

    max_consecutive: Annotated[int, POSITIVE] = 10
    max_restores: Annotated[int, NOT_NEGATIVE] = 3


@dataclasses.dataclass(frozen=True)
class PretrainTask(Bounded):
    """The task of the run, recorded for readers of its config.json."""

    KEY = "`task.{}`"

    kind: Annotated[str, one_of("pretraining")] = "pretraining"


@dataclasses.dataclass(frozen=True)
class PretrainConfig(Bounded):
    """The configuration tree of a run; the run's config.json holds it resolved.

    Attributes:
      precision: float32, mixed_bfloat16, or auto for the fastest on the device.
    """

    model: AlbertConfig = AlbertConfig()
    task: PretrainTask = PretrainTask()
    objective: ObjectiveConfig = ObjectiveConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loop: LoopConfig = LoopConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: GuardConfig = GuardConfig()
    precision: Annotated[str, one_of(*devices.PRECISIONS)] = "auto"
    seed: Annotated[int, between("[0, 2^31)")] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation.every % self.loop.steps_per_loop:
            raise ConfigError(
                "`evaluation.every` must be a multiple of `loop.steps_per_loop`. "
                f"Received: {self.evaluation.every}, {self.loop.steps_per_loop}."
            )
        if self.evaluation.every > self.loop.steps:
            raise ConfigError(
                "`evaluation.every` must not exceed `loop.steps`. "
                f"Received: {self.evaluation.every}, {self.loop.steps}."
            )
        trained = [objective for objective in self.objectives if objective.is_trained]
        metrics = [name for objective in trained for name in objective.metrics]
        if self.objective.of_pairs.is_trained:
            metrics += [f"{figure}/{self.objective.pair}" for figure in ("loss", "accuracy")]
        if self.evaluation.metric not in metrics:
            raise ConfigError(
                f"`evaluation.metric` must be one of {', '.join(metrics)}. "
                f"Received: {self.evaluation.metric!r}."
            )
        if self.loop.export == "best" and not self.evaluation.every:
            raise ConfigError(
                "`loop.export=best` needs evaluations: set `evaluation.every`, and pass --heldout."
            )

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads that the objectives declare."""
        return tuple(objective.head for objective in self.objectives)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All objectives of the run, in the order of `objective.factors`."""
        return MaskedLm(self.masking), self.objective.of_pairs

    @property
    def constant_steps(self) -> int:
        """The step at which the decay of the learning rate begins."""
        decay_steps = self.optimizer.decay_steps
        return self.schedule_steps - decay_steps if decay_steps else 0

    @property
    def schedule_steps(self) -> int:
        """The length of the learning-rate schedule in steps."""
        return self.optimizer.schedule_steps or self.loop.steps


def resolve(
    experiment: PretrainConfig,
    assignments: Iterable[str],
    manifest: Manifest,
    device: str = "auto",
) -> PretrainConfig:
    """Return the experiment with the user's values, the records' sizes and the precision.

    The learning rate is defined for the experiment's own batch size and is scaled to the user's.

    Raises:
      ConfigError: a value is impossible, or the user set it and it conflicts with the records.
    """
    assignments = list(assignments)
    config = settings.override(experiment, assignments)
    model, chosen = config.model, {a.partition("=")[0].strip() for a in assignments}
    if "model.vocab_size" in chosen and model.vocab_size != manifest.vocab_size:
        raise ConfigError(
            "`model.vocab_size` must equal the records' vocabulary size. "
            f"Received: {model.vocab_size}, records: {manifest.vocab_size}."
        )
    if model.max_positions < manifest.seq_length:
        if "model.max_positions" in chosen:
            raise ConfigError(
                "`model.max_positions` must be at least the records' sequence length. "
                f"Received: {model.max_positions}, records: {manifest.seq_length}."
            )
        model = dataclasses.replace(model, max_positions=manifest.seq_length)
    config.objective.of_pairs.check(manifest)
    if manifest.layout != COMPACT and (masking := [k for k in chosen if k.startswith("masking.")]):
        raise ConfigError(
            f"`{masking[0]}` applies only to the compact layout: these records were masked when "
            "they were built. Omit it, or rebuild the records with --layout=compact."
        )
    if manifest.layout == COMPACT:
        config.masking.slots(manifest.seq_length)  # raises if they do not fit
    model = dataclasses.replace(model, vocab_size=manifest.vocab_size)
    precision = devices.resolve_precision(config.precision, device)
    ratio = config.loop.global_batch_size / experiment.loop.global_batch_size
    power = _BATCH_SCALING[config.optimizer.batch_scaling]
    optimizer = dataclasses.replace(
        config.optimizer, learning_rate=config.optimizer.learning_rate * ratio**power
    )
    config = dataclasses.replace(config, model=model, optimizer=optimizer, precision=precision)
    _require_schedule(config)
    return config


def _require_schedule(config: PretrainConfig) -> None:
    """Check that warm-up and decay fit into the schedule, and the schedule into the run."""
    if config.schedule_steps > config.loop.steps:
        raise ConfigError(
            "`optimizer.schedule_steps` must not exceed `loop.steps`: the learning rate would not "
            f"reach 0. Received: {config.schedule_steps}, {config.loop.steps}."
        )
    if config.optimizer.warmup_steps > config.schedule_steps:
        raise ConfigError(
            "`optimizer.warmup_steps` must not exceed the schedule's length (`loop.steps`, or "
            f"`optimizer.schedule_steps`). Received: {config.optimizer.warmup_steps}, "
            f"{config.schedule_steps}."
        )
    if config.optimizer.warmup_steps + config.optimizer.decay_steps > config.schedule_steps:
        raise ConfigError(
            "`optimizer.warmup_steps` + `optimizer.decay_steps` must fit into the schedule. "
            f"Received: {config.optimizer.warmup_steps} and {config.optimizer.decay_steps} of "
            f"{config.schedule_steps} steps."
        )
