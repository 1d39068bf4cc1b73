"""What training does with held-out records: the best weights, when to stop, what to export."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.export.modules.encoder import load_encoder_module
from albert_tf.export.signatures import save
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from pretraining.loop.checkpoints import Checkpoints
from pretraining.loop.config import PretrainConfig

Evaluate = Callable[[], dict[str, Any]]  # name -> figure
HELDOUT = "heldout/"  # in front of the names of an evaluation in metrics.jsonl


class Selection:
    """Evaluates as `config.evaluation` says, and keeps and exports what is best.

    All it remembers is in the run's metrics, so that a restart decides as the run would have.
    Every worker evaluates and decides alike; `writes` is the folder that this one may write.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: AlbertPretrainer,
        evaluate: Evaluate | None,
        run: RunDir,
        writes: RunDir,
    ) -> None:
        self._config, self._run, self._writes = config, run, writes
        self._evaluate = evaluate
        folder = os.path.join(writes.best_path, "checkpoints")
        self._kept = Checkpoints(tf.train.Checkpoint(model=model), folder, folder, keep=None)
        self._reset()

    def _reset(self) -> None:
        self._best: float | None = None
        self._best_step = self._stale_evaluations = 0

    def rewind(self, step: int) -> None:
        """Takes up the decisions at `step`; what was kept of later steps is dropped."""
        self._reset()
        for row in self._run.metrics():
            if row["step"] <= step and HELDOUT + self._config.evaluation.metric in row:
                self._decide(int(row["step"]), row[HELDOUT + self._config.evaluation.metric])
        self._kept.drop(lambda kept: kept > step)

    def drop_older(self) -> None:
        """Keeps the best alone: training goes back to no earlier step than this any more."""
        self._kept.drop(lambda kept: kept != self._best_step)

    @property
    def is_exhausted(self) -> bool:
        """Whether `evaluation.patience` is at its end."""
        return 0 < self._config.evaluation.patience <= self._stale_evaluations

    def early_stop_message(self, step: int) -> str:
        """Of a run whose patience is at its end, a line for people."""
        evaluation = self._config.evaluation
        if self._best is None:
            return (
                f"ended at step {step:,} of {self._config.loop.steps:,}: heldout/"
                f"{evaluation.metric} was not a number in {self._stale_evaluations} evaluation(s)"
            )
        return (
            f"ended at step {step:,} of {self._config.loop.steps:,}: no better heldout/"
            f"{evaluation.metric} in {self._stale_evaluations} evaluation(s) than "
            f"{self._best:.4g} at step {self._best_step:,}, whose weights are in "
            f"{self._run.best_path}"
        )

    def evaluate_if_due(self, step: int) -> dict[str, float]:
        """Evaluates if it is time; the figures with HELDOUT in front."""
        every = self._config.evaluation.every
        is_due = every and (step % every == 0 or step == self._config.loop.steps)
        if not is_due or self._evaluate is None:
            return {}
        figures = {
            name: value
            for name, value in self._evaluate().items()
            if name.startswith(("loss/", "accuracy/"))
        }
        metric = self._config.evaluation.metric
        if self._decide(step, figures[metric]):
            self._keep(step)
        return {HELDOUT + name: value for name, value in figures.items()}

    def export(self, step: int) -> None:
        """Exports the encoder if `loop.export` asks for it at this checkpoint."""
        loop = self._config.loop
        is_end = step == loop.steps or self.is_exhausted
        if (loop.export == "last" and is_end) or (
            loop.export_every and (step % loop.export_every == 0 or is_end)
        ):
            self._export(self._run.path, step)
        if loop.export == "best" and self._best_step:
            self._export(self._run.best_path, self._best_step)

    def _decide(self, step: int, value: float) -> bool:
        is_best = self._config.evaluation.is_better(value, self._best)
        if is_best:
            self._best, self._best_step = value, step
        self._stale_evaluations = 0 if is_best else self._stale_evaluations + 1
        return is_best

    def _keep(self, step: int) -> None:
        self._kept.save(step)
        if os.path.isfile(self._writes.config_path):  # of several workers, the chief's folder
            best = RunDir(self._writes.best_path)
            shutil.copyfile(self._writes.config_path, best.config_path)
            shutil.copytree(self._writes.tokenizer_path, best.tokenizer_path, dirs_exist_ok=True)

    def _export(self, path: str, step: int) -> None:
        folder = os.path.join(self._run.export_path, str(step))
        if os.path.isdir(folder):
            return
        module = load_encoder_module(path)
        save(module, folder, load_tokenizer(self._run.tokenizer_path), self._run.config_path)
