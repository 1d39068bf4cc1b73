"""The log of a training run: metrics.jsonl, TensorBoard, a profile and the progress bar."""

import contextlib
from collections.abc import Iterator, Mapping

import tensorflow as tf

from albert_tf.models.config import AlbertConfig, layer_flops
from albert_tf.optimization.adamw import AdamW
from albert_tf.runtime.run_dir import RunDir
from albert_tf.training.metrics_log import MetricsLog
from albert_tf.training.progress import Progress
from data.records.manifest import COMPACT, Manifest
from pretraining.loop.config import PretrainConfig
from pretraining.loop.losses import means
from pretraining.loop.runtime import Runtime

_BACKWARD = 2  # times the forward pass: one product for the input's gradient, one for the weight's


class TrainingLog(MetricsLog):
    """A log with one row per loop: losses and accuracies are means over the loop's steps.

    flops_utilisation is the model FLOPs per second divided by the peak of the devices, if that is
    known (`albert_tf.runtime.peak_flops`).
    """

    def __init__(
        self,
        run: RunDir,
        config: PretrainConfig,
        manifest: Manifest,
        optimizer: AdamW,
        runtime: Runtime,
    ) -> None:
        super().__init__(run)
        self._config, self._optimizer = config, optimizer
        self._objectives = config.objectives
        self._seq_length, self._batch = manifest.seq_length, config.loop.global_batch_size
        slots = manifest.max_predictions  # of records that were masked when they were built
        if manifest.layout == COMPACT:
            slots = config.masking.slots(manifest.seq_length)
        self._flops = step_flops(config.model, self._batch, manifest.seq_length, slots)
        self._runtime, self._peak = runtime, runtime.peak_flops(config.precision)
        self._loops = 0

    def rewind(self, step: int) -> None:
        """Continue after `step`, dropping the rows of later steps."""
        super().rewind(step)
        self._progress = self.enter_context(Progress("steps", self._config.loop.steps, step))

    @contextlib.contextmanager
    def profiled(self, is_enabled: bool) -> Iterator[None]:
        """Profile the block for TensorBoard if it is the second one; the first one compiles."""
        self._loops += 1
        if not is_enabled or self._loops != 2:
            yield
            return
        with self._runtime.profiled(self._run.tensorboard_path):
            yield

    def write(
        self,
        step: int,
        count: int,
        sums: Mapping[str, float],
        seconds: float,
        heldout: Mapping[str, float],
    ) -> None:
        """Log the `count` steps up to `step`, which took `seconds`.

        `sums` holds the totals over these steps, `heldout` the metrics to add to the row.
        """
        rate = count / seconds
        updates = max(1.0, count - sums["skipped"])
        row = (
            {"step": step}
            | means(self._objectives, sums)
            | {
                "lr": float(tf.convert_to_tensor(self._optimizer.learning_rate)),
                "grad_norm": sums["grad_norm"] / updates,
                "skipped": sums["skipped"],
                "tokens_per_s": rate * self._batch * self._seq_length,
                "sequences_per_s": rate * self._batch,
                "step_ms": 1000 / rate,
            }
        )
        if self._peak:
            row["flops_utilisation"] = rate * self._flops / self._peak
        row |= heldout
        self.add(row)
        self._progress.advance(count, self._progress_text(row))

    def _progress_text(self, row: Mapping[str, float]) -> str:
        metrics = (name for objective in self._objectives for name in objective.metrics)
        shown = [name for name in metrics if name in row]
        parts = [f"{' '.join(reversed(name.split('/')))} {row[name]:.3f}" for name in shown]
        parts += [
            f"{row['sequences_per_s']:,.1f} sequences/s",
            f"{row['tokens_per_s']:,.0f} tokens/s",
        ]
        if "flops_utilisation" in row:
            parts.append(f"{row['flops_utilisation']:.0%} of peak FLOPs")
        return ", ".join(parts)


def step_flops(
    model: AlbertConfig, batch_size: int, seq_length: int, num_predictions: int
) -> float:
    """Return the model FLOPs of a forward and backward pass: those of its matrix products.

    A multiply-add counts as two. Recomputed activations do not count. Every position counts,
    padding included.
    """
    hidden = model.hidden_size
    factorized = model.embedding_size if model.embedding_size != hidden else 0
    prediction = hidden * model.embedding_size + model.embedding_size * model.vocab_size
    pair = hidden**2 + 2 * hidden
    others = seq_length * factorized * hidden + num_predictions * prediction + pair
    forward = model.num_layers * layer_flops(model, seq_length, seq_length) + 2 * others
    return float((1 + _BACKWARD) * batch_size * forward)
