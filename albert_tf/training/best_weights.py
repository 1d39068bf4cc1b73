"""Selection of the best weights of a run by a metric, and early stopping."""

import math

import tensorflow as tf

from albert_tf.training.checkpoints import Checkpoints


class BestWeights:
    """The best weights of a run, selected by its evaluations.

    All of the state can be rebuilt from the run's metrics, so that a resumed run makes the same
    decisions as an uninterrupted one. After an evaluation, write its metrics first, then save the
    state that the run resumes from, then call `drop_older`.

    Attributes:
      value, step: the best value and its step; NaN is never better. They are None and 0 at first.
      stale: the number of evaluations since the value last improved.

    Args:
      checkpoint: the weights.
      source, target: as in `Checkpoints`.
      column: the name of the metric.
      lower: True if lower is better, as for a loss.
      patience: the number of evaluations without a better one after which the run ends; None or 0
        means no limit.
      loss: the name of the loss that decides between equal values: the lower one wins, and where it
        is missing, the later evaluation. None: the first of equal values stays.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        source: str,
        target: str,
        column: str,
        lower: bool,
        patience: int | None,
        loss: str | None = None,
    ) -> None:
        self._checkpoints = Checkpoints(checkpoint, target, target, keep=None)
        self._of_chief = Checkpoints(checkpoint, source, target, keep=None)
        self._column, self._lower, self._patience = column, lower, patience or 0
        self._loss_column = loss
        self._forget()

    def _forget(self) -> None:
        self.value: float | None = None
        self._loss: float | None = None
        self.step = self.stale = 0

    def rewind(self, rows: list[dict[str, float]], step: int) -> None:
        """Repeat the decisions for `rows` up to `step`; drop weights that were saved later."""
        self._forget()
        for row in rows:
            if row["step"] <= step and self._column in row:
                loss = row.get(self._loss_column) if self._loss_column else None
                self._decide(int(row["step"]), row[self._column], loss)
        self._checkpoints.drop(lambda saved_step: saved_step > step)
        if self.step and self.step not in self._of_chief.steps() + self._checkpoints.steps():
            self._forget()  # it was dropped with a checkpoint that could not be read

    def add(self, step: int, value: float, loss: float | None = None) -> bool:
        """Save the weights and return True if `value`, evaluated at `step`, is the best."""
        if is_best := self._decide(step, value, loss):
            self._checkpoints.save(step)
        return is_best

    def drop_older(self) -> None:
        """Drop all weights but the best, once the run can no longer resume from an earlier step."""
        self._checkpoints.drop(lambda saved_step: saved_step != self.step)

    def restore(self) -> None:
        """Load the best weights into the model; weights that this process saved take precedence."""
        if self._checkpoints.restore() is None:
            self._of_chief.restore()

    @property
    def is_exhausted(self) -> bool:
        """True if the patience is exhausted."""
        return 0 < self._patience <= self.stale

    def _decide(self, step: int, value: float, loss: float | None) -> bool:
        if math.isnan(value):
            is_better = False
        elif self.value is None:
            is_better = True
        else:
            is_better = value < self.value if self._lower else value > self.value
        is_tie = self._loss_column is not None and value == self.value
        # Later weights were trained longer, at a lower rate.
        is_best = is_better or (
            is_tie and (loss is None or self._loss is None or loss < self._loss)
        )
        if is_best:
            self.value, self._loss, self.step = value, loss, step
        self.stale = 0 if is_better else self.stale + 1  # a tie does not prolong the run
        return is_best
