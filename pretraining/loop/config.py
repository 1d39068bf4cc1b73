"""PretrainConfig: everything a pretraining run depends on besides its records."""

import dataclasses
from collections.abc import Iterable
from typing import Annotated

from albert_tf.models.config import AlbertConfig
from albert_tf.optimization import OPTIMIZERS
from albert_tf.runtime import devices, settings
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, Bounded, between, one_of
from albert_tf.runtime.errors import ConfigError
from data.pipeline.batches import Objective, check_objective
from data.pipeline.masking import MaskingConfig
from data.records.manifest import COMPACT, Manifest

_BATCH_SCALING = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}  # power of the ratio of batch sizes


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Bounded):
    """LAMB as the paper's authors ran it, by default (paper section 4.1).

    batch_scaling: what another batch size than the experiment's own does to the learning rate:
      none; sqrt, times the root of the ratio, LAMB's rule (arXiv 1904.00962, section 4), with the
      same number of warm-up steps; or linear, times the ratio.
    schedule_steps: the step at which the learning rate reaches 0; 0 means `loop.steps`.
    decay_steps: how many steps before that the learning rate begins to fall; 0: from step 0 on, as
      in the paper. Until then it is constant, so that where a run ends can be decided late.
    clip_norm: global norm that gradients are clipped to.
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
    """How long to train, in which batches, and how often to look up.

    accumulation_steps: parts that a replica's batch is computed in, one after the other, for one
      update: less memory, the same curve.
    steps_per_loop: steps inside one `tf.function`; between loops metrics are written and SIGTERM is
      obeyed.
    checkpoint_every: in steps; a multiple of `steps_per_loop`.
    export: when the encoder is exported to the run's export/STEP: none, last, best (each time that
      `evaluation.metric` is better than before), or every:N steps, a multiple of checkpoint_every.
    deterministic: only kernels that give the same bits each time. On a CPU they cost nothing that
      can be measured; on a GPU they may be slower, which has not been measured.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        every = self.export_every
        if self.export not in ("none", "last", "best") and not every:
            raise ConfigError(
                "`loop.export` must be none, last, best or every:N with N steps, a multiple of "
                f"`loop.checkpoint_every`. Received: {self.export!r}, {self.checkpoint_every}."
            )
        if self.checkpoint_every % self.steps_per_loop:
            raise ConfigError(
                "`loop.checkpoint_every` must be a multiple of `loop.steps_per_loop`. "
                f"Received: {self.checkpoint_every}, {self.steps_per_loop}."
            )

    @property
    def export_every(self) -> int:
        """N of `export=every:N`, a multiple of `checkpoint_every`; else 0."""
        kind, _, steps = self.export.partition(":")
        is_multiple = steps.isdigit() and int(steps) % self.checkpoint_every == 0
        return int(steps) if kind == "every" and is_multiple else 0


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Bounded):
    """How often the held-out records are read during training, and what for.

    every: in steps, a multiple of `loop.steps_per_loop`; 0 is never.
    metric: of the evaluation: what makes a checkpoint the best; losses are better when lower,
      everything else when higher.
    patience: evaluations without a better one until training stops; 0 is never.
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
    """What happens when a loss or a gradient is not finite: the step changes no weight.

    max_consecutive: so many such steps in a row go back to the last checkpoint, with other data.
    max_restores: of these until training gives up.
    """

    KEY = "`guard.{}`"

    max_consecutive: Annotated[int, POSITIVE] = 10
    max_restores: Annotated[int, NOT_NEGATIVE] = 3


@dataclasses.dataclass(frozen=True)
class PretrainTask(Bounded):
    """What the run trains, for readers of its config.json."""

    KEY = "`task.{}`"

    kind: Annotated[str, one_of("pretraining")] = "pretraining"


@dataclasses.dataclass(frozen=True)
class PretrainConfig(Bounded):
    """The resolved tree is what a run's config.json holds.

    precision: float32 or mixed_bfloat16; `auto` is what the device computes fastest.
    """

    model: AlbertConfig = AlbertConfig()
    task: PretrainTask = PretrainTask()
    objective: Objective = Objective()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loop: LoopConfig = LoopConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: GuardConfig = GuardConfig()
    precision: Annotated[str, one_of(*devices.PRECISIONS)] = "auto"
    seed: Annotated[int, NOT_NEGATIVE] = 0

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
        pairs = () if self.objective.pair == "none" else ("pair", self.objective.pair)
        metrics = [f"{m}/{t}" for t in ("mlm", *pairs) for m in ("loss", "accuracy")]
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
    def constant_steps(self) -> int:
        """The step at which the learning rate begins to fall."""
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
    """The experiment with the user's values, the records' vocabulary and length, and the precision.

    The learning rate, which is for the experiment's own batch, is scaled to that of the user.

    Raises:
      ConfigError: a value is impossible, or set and different from the records'.
    """
    assignments = list(assignments)
    config = settings.override(experiment, assignments)
    model, chosen = config.model, {a.partition("=")[0].strip() for a in assignments}
    if "model.vocab_size" in chosen and model.vocab_size != manifest.vocab_size:
        raise ConfigError(
            "`model.vocab_size` must be the records' vocabulary size. "
            f"Received: {model.vocab_size}, records: {manifest.vocab_size}."
        )
    if model.max_positions < manifest.seq_length:
        if "model.max_positions" in chosen:
            raise ConfigError(
                "`model.max_positions` must be at least the records' sequence length. "
                f"Received: {model.max_positions}, records: {manifest.seq_length}."
            )
        model = dataclasses.replace(model, max_positions=manifest.seq_length)
    check_objective(manifest, config.objective)
    if manifest.layout != COMPACT and (masking := [k for k in chosen if k.startswith("masking.")]):
        raise ConfigError(
            f"`{masking[0]}` is for the compact layout: the records were masked when they were "
            "built. Leave it out, or build with --layout=compact."
        )
    model = dataclasses.replace(model, vocab_size=manifest.vocab_size)
    precision = devices.resolve_precision(config.precision, device)
    ratio = config.loop.global_batch_size / experiment.loop.global_batch_size
    power = _BATCH_SCALING[config.optimizer.batch_scaling]
    optimizer = dataclasses.replace(
        config.optimizer, learning_rate=config.optimizer.learning_rate * ratio**power
    )
    config = dataclasses.replace(config, model=model, optimizer=optimizer, precision=precision)
    if config.schedule_steps > config.loop.steps:
        raise ConfigError(
            "`optimizer.schedule_steps` must not exceed `loop.steps`, or the rate never reaches 0. "
            f"Received: {config.schedule_steps}, {config.loop.steps}."
        )
    if config.optimizer.warmup_steps > config.schedule_steps:
        raise ConfigError(
            "`optimizer.warmup_steps` must not exceed the schedule's length (`loop.steps`, or "
            f"`optimizer.schedule_steps`). Received: {config.optimizer.warmup_steps}, "
            f"{config.schedule_steps}."
        )
    if config.optimizer.warmup_steps + config.optimizer.decay_steps > config.schedule_steps:
        raise ConfigError(
            "`optimizer.warmup_steps` and `optimizer.decay_steps` must fit into the schedule. "
            f"Received: {config.optimizer.warmup_steps} and {config.optimizer.decay_steps} of "
            f"{config.schedule_steps} steps."
        )
    return config
