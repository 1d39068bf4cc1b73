"""What happens beside the training: metrics.jsonl, TensorBoard and the progress bar."""

import time
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
        self._summaries = tf.summary.create_file_writer(run.tensorboard_path)
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__()
        self._summaries.close()

    def write(self, step: int, count: int, sums: Mapping[str, tf.Tensor]) -> None:
        """Logs `count` steps that ended at `step`; `sums` are their totals."""
        totals = {name: float(value) for name, value in sums.items()}
        now = time.monotonic()
        seconds, self._last = (now - self._last) / count, now
        row = {"step": step} | means(totals)
        row |= {
            "lr": float(tf.convert_to_tensor(self._optimizer.learning_rate)),
            "grad_norm": totals["grad_norm"] / count,
            "tokens_per_s": self._tokens_per_step / seconds,
            "step_ms": 1000 * seconds,
        }
        self._run.add_metrics(row)
        with self._summaries.as_default(step=step):
            for name, value in row.items():
                if name != "step":
                    tf.summary.scalar(name, value)
        self._progress.advance(count, _note(row))


def _note(row: Mapping[str, float]) -> str:
    shown = {
        "loss/mlm": "mlm loss",
        "accuracy/mlm": "mlm accuracy",
        "accuracy/pair": "sop accuracy",
    }
    parts = [f"{text} {row[name]:.3f}" for name, text in shown.items() if name in row]
    return ", ".join([*parts, f"{row['tokens_per_s']:,.0f} tokens/s"])
