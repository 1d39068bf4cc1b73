"""Held-out evaluation during training: the best weights, early stopping and exports."""

import os
import shutil
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from albert_tf.export.saved_model import save
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError, listed
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.pretrained.encoder import load_encoder_module
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training.best_weights import BestWeights
from albert_tf.training.graph_memory import graphs_forgotten
from pretraining.loop.config import PretrainConfig

Evaluate = Callable[[], dict[str, Any]]  # name -> value
HELDOUT = "heldout/"  # prefix of held-out metrics in metrics.jsonl


class Selection(BestWeights):
    """Evaluations according to `config.evaluation`, with the best weights and the exports.

    Every worker evaluates and reaches the same decisions.

    Args:
      config: the run's configuration.
      model: the model that is trained.
      evaluate: returns the metrics of an evaluation; None to never evaluate.
      run: the run that all workers read.
      writes: the folder that this worker may write to.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: AlbertPretrainer,
        evaluate: Evaluate | None,
        run: RunDir,
        writes: RunDir,
    ) -> None:
        evaluation = config.evaluation
        super().__init__(
            tf.train.Checkpoint(model=model),
            os.path.join(run.best_path, "checkpoints"),
            os.path.join(writes.best_path, "checkpoints"),
            HELDOUT + evaluation.metric,
            evaluation.metric.startswith("loss/"),
            evaluation.patience,
        )
        self._config, self._run, self._writes = config, run, writes
        self._evaluate = evaluate

    def early_stop_message(self, step: int) -> str:
        """Return a message for the user of a run whose patience is exhausted."""
        ended = f"stopped early at step {step:,} of {self._config.loop.steps:,}:"
        metric = HELDOUT + self._config.evaluation.metric
        if self.value is None:
            return f"{ended} {metric} was NaN in {self.stale} evaluation(s)"
        return (
            f"{ended} {metric} did not improve in {self.stale} evaluation(s); the best was "
            f"{self.value:.4g} at step {self.step:,}, with its weights in {self._run.best_path}"
        )

    def is_due(self, step: int) -> bool:
        """Return True if `config.evaluation` requires an evaluation at this step."""
        every = self._config.evaluation.every
        return bool(every) and (step % every == 0 or step == self._config.loop.steps)

    def evaluate_if_due(self, step: int) -> dict[str, float]:
        """Evaluate if due; return the metrics with the prefix HELDOUT, or an empty dict."""
        if self._evaluate is None or not self.is_due(step):
            return {}
        figures = {
            name: value
            for name, value in self._evaluate().items()
            if name.startswith(("loss/", "accuracy/"))
        }
        if (metric := self._config.evaluation.metric) not in figures:
            raise InputError(
                f"--heldout must have examples for `evaluation.metric` {metric}. Received: records "
                f"without one, which give {listed(sorted(figures))}. Name another metric, or build "
                "larger held-out records."
            )
        is_best = self.add(step, figures[metric])
        if is_best and os.path.isfile(self._writes.config_path):  # only the chief has it
            best = RunDir(self._writes.best_path)
            shutil.copyfile(self._writes.config_path, best.config_path)
            shutil.copytree(self._writes.tokenizer_path, best.tokenizer_path, dirs_exist_ok=True)
        return {HELDOUT + name: value for name, value in figures.items()}

    def export(self, step: int) -> None:
        """Export the encoder if `loop.export` requires it at this checkpoint."""
        loop = self._config.loop
        is_end = step == loop.steps or self.is_exhausted
        if (loop.export == "last" and is_end) or (
            loop.export_every and (step % loop.export_every == 0 or is_end)
        ):
            self._export(self._run.path, step)
        if loop.export == "best" and self.step and (step % loop.checkpoint_every == 0 or is_end):
            self._export(self._run.best_path, self.step)

    def _export(self, path: str, step: int) -> None:
        folder = os.path.join(self._run.export_path, str(step))
        if os.path.isdir(folder):
            return
        tokenizer = load_tokenizer(self._run.tokenizer_path)
        with graphs_forgotten():
            save(load_encoder_module(path), folder, tokenizer, self._run.config_path)
