"""The best weights of a run by a metric, and when to stop waiting for better ones."""

import math

import tensorflow as tf

from albert_tf.training.checkpoints import Checkpoints


class BestWeights:
    """Decides by evaluations, and keeps the weights of the best.

    All it remembers is in the run's metrics, so that a restart decides as the run would have: first
    the metrics of an evaluation, then the state that the run goes back to, then `drop_older`.

    Attributes:
      value, step: the best, strictly, and the first of equals; NaN is never better. None and 0
        before there is one.
      stale: evaluations since.

    Args:
      checkpoint: the weights.
      source, target: as of `Checkpoints`.
      column: of the metrics.
      lower: whether lower is better, as of a loss.
      patience: evaluations without a better one until the run ends; None or 0: it goes on.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        source: str,
        target: str,
        column: str,
        lower: bool,
        patience: int | None,
    ) -> None:
        self._checkpoints = Checkpoints(checkpoint, target, target, keep=None)
        self._of_chief = Checkpoints(checkpoint, source, target, keep=None)
        self._column, self._lower, self._patience = column, lower, patience or 0
        self._forget()

    def _forget(self) -> None:
        self.value: float | None = None
        self.step = self.stale = 0

    def rewind(self, rows: list[dict[str, float]], step: int) -> None:
        """Takes up the decisions that `rows` led to until `step`; drops what was kept later."""
        self._forget()
        for row in rows:
            if row["step"] <= step and self._column in row:
                self._decide(int(row["step"]), row[self._column])
        self._checkpoints.drop(lambda kept: kept > step)
        if self.step and self.step not in self._of_chief.steps() + self._checkpoints.steps():
            self._forget()  # it went with a checkpoint that could not be read any more

    def add(self, step: int, value: float) -> bool:
        """Keeps the weights if `value`, an evaluation at `step`, is the best; returns whether."""
        if is_best := self._decide(step, value):
            self._checkpoints.save(step)
        return is_best

    def drop_older(self) -> None:
        """Keeps the best alone: training goes back to no earlier step than this any more."""
        self._checkpoints.drop(lambda kept: kept != self.step)

    def restore(self) -> None:
        """Gives the model the best weights, those that this process has saved before others."""
        if self._checkpoints.restore() is None:
            self._of_chief.restore()

    @property
    def is_exhausted(self) -> bool:
        """Whether the patience is at its end."""
        return 0 < self._patience <= self.stale

    def _decide(self, step: int, value: float) -> bool:
        if math.isnan(value):
            is_best = False
        elif self.value is None:
            is_best = True
        else:
            is_best = value < self.value if self._lower else value > self.value
        if is_best:
            self.value, self.step = value, step
        self.stale = 0 if is_best else self.stale + 1
        return is_best
