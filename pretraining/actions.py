"""What happens beside the training: metrics.jsonl, TensorBoard and the progress bar."""

import shutil
from collections.abc import Mapping
from typing import Self

import tensorflow as tf

from albert_tf.optimization.adamw import AdamW
from albert_tf.progress import Progress
from albert_tf.runs import RunDir
from data.records import Manifest
from pretraining.config import PretrainConfig
from pretraining.losses import means


class TrainingLog:
    """Writes one row per loop: losses and accuracies as means over the loop's steps."""

    def __init__(
        self, run: RunDir, config: PretrainConfig, manifest: Manifest, optimizer: AdamW, step: int
    ) -> None:
        self._run, self._optimizer = run, optimizer
        self._tokens_per_step = config.loop.global_batch_size * manifest.seq_length
        self._progress = Progress("steps", config.loop.steps, step)
        run.keep_metrics_until(step)
        # Written anew from the rows that stay: TensorBoard would show the others twice.
        shutil.rmtree(run.tensorboard_path, ignore_errors=True)
        self._summaries = tf.summary.create_file_writer(run.tensorboard_path)
        for row in run.metrics():
            self._summarize(row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__()
        self._summaries.close()

    def write(self, step: int, count: int, sums: Mapping[str, float], seconds: float) -> None:
        """Logs `count` steps that ended at `step` and took `seconds`; `sums` are their totals."""
        row = {"step": step} | means(sums)
        row |= {
            "lr": float(tf.convert_to_tensor(self._optimizer.learning_rate)),
            "grad_norm": sums["grad_norm"] / count,
            "tokens_per_s": self._tokens_per_step * count / seconds,
            "step_ms": 1000 * seconds / count,
        }
        self._run.add_metrics(row)
        self._summarize(row)
        self._progress.advance(count, _note(row))

    def _summarize(self, row: Mapping[str, float]) -> None:
        with self._summaries.as_default(step=int(row["step"])):
            for name, value in row.items():
                if name != "step":
                    tf.summary.scalar(name, value)


def _note(row: Mapping[str, float]) -> str:
    shown = {
        "loss/mlm": "mlm loss",
        "accuracy/mlm": "mlm accuracy",
        "accuracy/pair": "sop accuracy",
    }
    parts = [f"{text} {row[name]:.3f}" for name, text in shown.items() if name in row]
    return ", ".join([*parts, f"{row['tokens_per_s']:,.0f} tokens/s"])
