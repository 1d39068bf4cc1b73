"""PretrainConfig: everything a pretraining run depends on besides its records."""

import dataclasses
from collections.abc import Iterable

from albert_tf import hardware, settings
from albert_tf.config import AlbertConfig
from albert_tf.errors import ConfigError
from albert_tf.optimization import OPTIMIZERS
from data.input_pipeline import Objective, check_objective
from data.masking import MaskingConfig
from data.records import COMPACT, Manifest


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """LAMB as the paper's authors ran it, by default (paper section 4.1).

    schedule_steps: the step at which the learning rate reaches 0; 0 means `loop.steps`.
    clip_norm: global norm that gradients are clipped to.
    """

    name: str = "lamb"
    learning_rate: float = 0.00176
    warmup_steps: int = 3125
    schedule_steps: int = 0
    weight_decay_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise ConfigError(
                f"`optimizer.name` must be one of {', '.join(OPTIMIZERS)}. Received: {self.name!r}."
            )
        for key in ("learning_rate", "clip_norm", "epsilon"):
            if not getattr(self, key) > 0:  # NaN too
                raise ConfigError(
                    f"`optimizer.{key}` must be positive. Received: {getattr(self, key)}."
                )
        for key in ("warmup_steps", "schedule_steps", "weight_decay_rate"):
            if not getattr(self, key) >= 0:
                raise ConfigError(
                    f"`optimizer.{key}` must not be negative. Received: {getattr(self, key)}."
                )
        for key in ("beta_1", "beta_2"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(
                    f"`optimizer.{key}` must be in [0, 1). Received: {getattr(self, key)}."
                )


@dataclasses.dataclass(frozen=True)
class LoopConfig:
    """How long to train, in which batches, and how often to look up.

    steps_per_loop: steps inside one `tf.function`; metrics are written once per loop.
    checkpoint_every: in steps; a multiple of `steps_per_loop`.
    """

    steps: int = 125_000
    global_batch_size: int = 4096
    steps_per_loop: int = 100
    checkpoint_every: int = 1000
    keep_checkpoints: int = 3

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(
                    f"`loop.{field.name}` must be positive. Received: {getattr(self, field.name)}."
                )
        if self.checkpoint_every % self.steps_per_loop:
            raise ConfigError(
                "`loop.checkpoint_every` must be a multiple of `loop.steps_per_loop`. "
                f"Received: {self.checkpoint_every}, {self.steps_per_loop}."
            )


@dataclasses.dataclass(frozen=True)
class PretrainTask:
    """What the run trains, for readers of its config.json."""

    kind: str = "pretraining"

    def __post_init__(self) -> None:
        if self.kind != "pretraining":
            raise ConfigError(f"`task.kind` must be pretraining. Received: {self.kind!r}.")


@dataclasses.dataclass(frozen=True)
class PretrainConfig:
    """The resolved tree is what a run's config.json holds.

    precision: float32 or mixed_bfloat16; `auto` is what the device computes fastest.
    """

    model: AlbertConfig = AlbertConfig()
    task: PretrainTask = PretrainTask()
    objective: Objective = Objective()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loop: LoopConfig = LoopConfig()
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in hardware.PRECISIONS:
            raise ConfigError(
                f"`precision` must be one of {', '.join(hardware.PRECISIONS)}. "
                f"Received: {self.precision!r}."
            )

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
    precision = hardware.resolve_precision(config.precision, device)
    config = dataclasses.replace(config, model=model, precision=precision)
    if config.optimizer.warmup_steps > config.schedule_steps:
        raise ConfigError(
            "`optimizer.warmup_steps` must not exceed the schedule's length (`loop.steps`, or "
            f"`optimizer.schedule_steps`). Received: {config.optimizer.warmup_steps}, "
            f"{config.schedule_steps}."
        )
    return config
