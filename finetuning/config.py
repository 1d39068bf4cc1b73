"""FinetuneConfig: everything a fine-tuning run depends on besides its data."""

import dataclasses

from albert_tf.config import AlbertConfig
from albert_tf.errors import ConfigError
from albert_tf.tasks.classifier import ClassifierTask


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """AdamW with linear warm-up and decay (paper, Table 14 for the tasks' own values)."""

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-4
    warmup_fraction: float = 0.1
    weight_decay_rate: float = 0.01
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        for key in ("epochs", "batch_size", "learning_rate", "clip_norm"):
            if not getattr(self, key) > 0:  # NaN too
                raise ConfigError(
                    f"`training.{key}` must be positive. Received: {getattr(self, key)}."
                )
        if not 0 <= self.warmup_fraction < 1:
            raise ConfigError(
                f"`training.warmup_fraction` must be in [0, 1). Received: {self.warmup_fraction}."
            )


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """The resolved tree is what a run's config.json holds."""

    model: AlbertConfig
    task: ClassifierTask
    training: TrainingConfig = TrainingConfig()
    seed: int = 0
